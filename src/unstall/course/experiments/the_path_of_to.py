"""`x.to("cuda")` goes from Python through torch's dispatcher to a call of CUDA. A recording has each link.

Beside each link stands the file of torch's repository that has it.
"""

import torch
from torch.profiler import profile

FILES = {
    "aten::to": "aten/src/ATen/native/TensorConversions.cpp",
    "aten::_to_copy": "aten/src/ATen/native/TensorConversions.cpp",
    "aten::empty_strided": "aten/src/ATen/native/cuda/TensorFactories.cu",
    "aten::copy_": "aten/src/ATen/native/Copy.cpp, then aten/src/ATen/native/cuda/Copy.cu",
    "cudaMemcpyAsync": "CUDA, called in Copy.cu if non_blocking, else by memcpy_and_sync in c10/cuda/CUDAFunctions.h",
    "cudaStreamSynchronize": "CUDA, called by memcpy_and_sync in c10/cuda/CUDAFunctions.h",
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
    print("Tensor.to (tools/autograd/templates/python_variable_methods.cpp)")
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
