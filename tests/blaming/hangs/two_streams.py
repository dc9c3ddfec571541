import ctypes

import torch

driver = ctypes.CDLL("libcuda.so.1")
flags = torch.zeros(2, dtype=torch.int32, device="cuda")
print((torch.ones(1024, device="cuda") * 2 + 1).sum().item())  # a kernel's first launch waits for streams
one, two = torch.cuda.Stream(), torch.cuda.Stream()


def flag_of(stream, index):
    address = flags.data_ptr() + 4 * index
    return ctypes.c_void_p(stream.cuda_stream), ctypes.c_uint64(address), ctypes.c_uint32(1), ctypes.c_uint(0)


print("now", flush=True)
with torch.cuda.stream(one):
    left = torch.ones(1024, device="cuda") * 2
    driver.cuStreamWaitValue32_v2(*flag_of(one, 0))  # the hang
    driver.cuStreamWriteValue32_v2(*flag_of(one, 1))
    left = left + 1
with torch.cuda.stream(two):
    right = torch.ones(1024, device="cuda") * 3
    driver.cuStreamWaitValue32_v2(*flag_of(two, 1))  # the hang
    driver.cuStreamWriteValue32_v2(*flag_of(two, 0))
    right = right + 1
torch.cuda.synchronize()
