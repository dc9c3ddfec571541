"""`x.to("cuda")` goes from Python through torch's dispatcher to a call of CUDA. A recording has each link.

Beside each link stands the file of torch's repository that has it, most of them in aten/src/ATen/native.
"""

import torch
from torch.profiler import profile

FILES = {
    "aten::to": "TensorConversions.cpp",
    "aten::_to_copy": "TensorConversions.cpp",
    "aten::empty_strided": "cuda/TensorFactories.cu",
    "aten::copy_": "Copy.cpp, then cuda/Copy.cu",
    "cudaMemcpyAsync": "by cuda/Copy.cu, or by memcpy_and_sync",
    "cudaStreamSynchronize": "by memcpy_and_sync in c10/cuda/CUDAFunctions.h",
}
pageable = torch.randn(1024, 1024)
pinned = pageable.pin_memory()
pageable.to("cuda")  # the first time takes memory


def show(event, names, depth=0):
    print(f"{'  ' * depth}{event.name}" + (f" ({FILES[event.name]})" if event.name in FILES else ""))
    names.append(event.name)
    for child in event.cpu_children:
        show(child, names, depth + 1)
    return names


def path_of(call):
    with profile() as recorded:
        call()
        torch.cuda.synchronize()
    copies = [event.name for event in recorded.events() if event.name.startswith("Memcpy")]
    first = next(event for event in recorded.events() if event.name == "aten::to")
    print("Tensor.to (python_variable_methods.cpp in tools/autograd/templates)")
    names = show(first, [], depth=1)
    print(f"on the GPU, {copies[0]}")
    return names, copies


# %% A call that waits: CUDA copies, and torch waits for the current stream.
names, copies = path_of(lambda: pageable.to("cuda"))
print(f"links: {sum(name in FILES for name in set(names))}")
print(f"copies on the GPU: {len(copies)}")
print(f"waits for the stream: {names.count('cudaStreamSynchronize')}")

# %% With non_blocking, torch does not wait for the stream. If the memory is pinned, CUDA does not wait either.
names, copies = path_of(lambda: pinned.to("cuda", non_blocking=True))
print(f"links, pinned and non_blocking: {sum(name in FILES for name in set(names))}")
print(f"copies on the GPU, pinned and non_blocking: {len(copies)}")
print(f"waits for the stream, pinned and non_blocking: {names.count('cudaStreamSynchronize')}")
