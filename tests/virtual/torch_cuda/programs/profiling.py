"""NVTX, the CUDA runtime's functions, switches of torch.backends, and what is refused."""

import torch
from virtual.torch_cuda.programs.telling import fact

nvtx = torch.cuda.nvtx
fact(
    "ranges", lambda: [nvtx.range_push("a"), nvtx.range_push("b"), nvtx.range_pop(), nvtx.range_pop(), nvtx.range_pop()]
)
fact("handles", lambda: [nvtx.range_end(nvtx.range_start("c")), nvtx.mark("d")])
runtime = torch.cuda.cudart()
fact("texts", lambda: [runtime.cudaGetErrorString(runtime.cudaError(code)) for code in (0, 2, 600, 777_777)])
fact("profiler", lambda: [torch.cuda.profiler.start(), torch.cuda.profiler.stop()])
fact("check", lambda: torch.cuda.check_error(2))
fact("handle", lambda: torch.cuda.current_blas_handle() != 0)
fact("switches", lambda: [torch.backends.cuda.matmul.allow_tf32, torch.backends.cuda.flash_sdp_enabled()])
fact("benchmark", lambda: [torch.backends.cudnn.benchmark_limit, torch.backends.cudnn.benchmark])


def set_switches() -> object:
    torch.backends.cudnn.benchmark_limit = 3
    torch.backends.cuda.matmul.allow_tf32 = True
    return [torch.backends.cudnn.benchmark_limit, torch.backends.cuda.matmul.allow_tf32]


fact("set switches", set_switches)
fact("workspace", lambda: torch._C._cuda_getCublasWorkspaceSize())
fact("tunable", lambda: [torch.cuda.tunable.is_enabled(), torch.cuda.tunable.get_max_tuning_duration()])
fact("sync mode", torch.cuda.get_sync_debug_mode)
ONES = "template <typename T> T one(T x) { return 1; }"
for name, ask in {
    "torch.cuda.tunable.enable": lambda: torch.cuda.tunable.enable(),
    "torch.cuda.jiterator": lambda: torch.cuda.jiterator._create_jit_fn(ONES)(torch.ones(1, device="cuda")),
    "torch.cuda.gds.gds_register_buffer": lambda: torch.cuda.gds.gds_register_buffer(torch.ones(1).untyped_storage()),
    "torch.cuda.nccl.init_rank": lambda: torch.cuda.nccl.init_rank(2, b"", 0),
    "cudaHostRegister": lambda: runtime.cudaHostRegister(0, 0, 0),
    "torch.autograd.profiler.emit_nvtx": lambda: torch.autograd.profiler.emit_nvtx().__enter__(),
}.items():
    fact(name, ask)


def missing_names() -> object:
    """Names of a CUDA build that torch's own code asks of `torch._C`, and that are not there."""
    import re
    from pathlib import Path

    found = set()
    for path in Path(torch.__file__).parent.rglob("*.py"):
        if not {"testing", "_inductor", "_dynamo", "include"} & set(path.parts):
            found |= set(
                re.findall(r"\b_C\.(_(?:cuda|cudnn|cudart|nccl|nvtx|host|gds)\w*)", path.read_text(errors="ignore"))
            )
    return sorted(name for name in found if not hasattr(torch._C, name))


fact("missing names", missing_names)
