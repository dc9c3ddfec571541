"""Which ATen operators each case reaches below autograd, with their outputs and, on a real GPU, the memory they took.

    python dispatched.py FILE.json.gz     on a real GPU: records what the tests compare with
    python dispatched.py                  on a virtual one: prints the same

A row is [operator, outputs] or [operator, outputs, bytes more than before, most bytes more meanwhile]. A tensor is its
dtype and sizes, with strides (after "s") where it is not contiguous, and "@cpu" where it is none of the GPU.
"""

import gzip
import json
import sys
import warnings
from pathlib import Path

import torch
from torch.utils._python_dispatch import TorchDispatchMode

sys.path.insert(0, str(Path(__file__).parent))
from cases import attention, layers, training

SHORT = {
    torch.float32: "f32",
    torch.float64: "f64",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.int64: "i64",
    torch.int32: "i32",
    torch.bool: "b",
    torch.uint8: "u8",
    torch.uint64: "u64",
}


def shown(value):
    if isinstance(value, torch.Tensor):
        if value.is_nested:
            return "nested"
        text = SHORT.get(value.dtype, str(value.dtype)) + str(list(value.shape)).replace(" ", "")
        if not value.is_contiguous():
            text += "s" + str(list(value.stride())).replace(" ", "")
        return text if value.is_cuda else text + "@cpu"
    if isinstance(value, (list, tuple)):
        return [shown(one) for one in value]
    if isinstance(value, float):
        return "float"
    return value if value is None or isinstance(value, (int, str)) else type(value).__name__


class Watching(TorchDispatchMode):
    def __init__(self, memory: bool) -> None:
        super().__init__()
        self.rows: list[list] = []
        self.memory = memory

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if self.memory:
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
        result = func(*args, **(kwargs or {}))
        row = [str(func).removeprefix("aten."), shown(result)]
        if self.memory:
            row += [torch.cuda.memory_allocated() - before, torch.cuda.max_memory_allocated() - before]
        self.rows.append(row)
        return result


def watch(case, memory: bool) -> dict:
    torch.manual_seed(0)
    watching = Watching(memory)
    error = None
    try:
        with watching:
            case()
    except Exception as raised:
        error = f"{type(raised).__name__}: {str(raised)[:300]}"
    return {"rows": watching.rows, "error": error}


def main() -> None:
    warnings.simplefilter("ignore")
    recording = len(sys.argv) > 1
    cases = {**attention.cases(), **layers.cases(), **training.cases()}
    told = {name: watch(case, recording) for name, case in cases.items()}
    if not recording:
        print(json.dumps(told))
        return
    about = {"torch": torch.__version__, "gpu": torch.cuda.get_device_name(), "cudnn": torch.backends.cudnn.version()}
    with gzip.open(sys.argv[1], "wt") as file:
        json.dump({"about": about, "cases": told}, file)


if __name__ == "__main__":
    main()
