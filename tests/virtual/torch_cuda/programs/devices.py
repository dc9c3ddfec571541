"""Two devices, as a program asks for them."""

import os

import torch
from virtual.torch_cuda.programs.telling import fact

fact("available before anything", torch.cuda.is_available)
fact("initialised before anything", torch.cuda.is_initialized)
fact("count", torch.cuda.device_count)
fact("versions", lambda: [torch.version.cuda, torch.backends.cudnn.version(), torch.cuda.nccl.version()])
fact("built", lambda: [torch.backends.cuda.is_built(), torch.backends.cudnn.is_available()])
fact("current", torch.cuda.current_device)
fact("initialised after that", torch.cuda.is_initialized)
fact("properties", lambda: repr(torch.cuda.get_device_properties(0)))
fact(
    "uuids differ",
    lambda: str(torch.cuda.get_device_properties(0).uuid) != str(torch.cuda.get_device_properties(1).uuid),
)
fact("capability", lambda: torch.cuda.get_device_capability(1))
fact("name", torch.cuda.get_device_name)
fact("architectures", torch.cuda.get_arch_list)
fact("bfloat16 and tf32", lambda: [torch.cuda.is_bf16_supported(), torch.cuda.is_tf32_supported()])
fact("peers", lambda: [torch.cuda.can_device_access_peer(0, 1), torch.cuda.can_device_access_peer(0, 0)])
fact("no such device", lambda: torch.cuda.set_device(9))
fact("no such properties", lambda: torch.cuda.get_device_properties(9))


def within_device() -> object:
    with torch.cuda.device(1):
        inside = torch.cuda.current_device(), str(torch.zeros(1, device="cuda").device), str(torch.cuda.Stream().device)
    return [*inside, torch.cuda.current_device()]


fact("within device 1", within_device)
fact("from device 0 to 1", lambda: str(torch.ones(3, device="cuda:0").to("cuda:1").device))
fact("both at once", lambda: torch.ones(1, device="cuda:0") + torch.ones(1, device="cuda:1"))
fact("accelerator", lambda: [str(torch.accelerator.current_accelerator()), torch.accelerator.device_count()])


def within_accelerator() -> object:
    with torch.accelerator.device_index(1):
        return torch.accelerator.current_device_index()


fact("accelerator's index", within_accelerator)


def in_forked_child() -> object:
    inherited = torch.ones(1, device="cuda")
    read, write = os.pipe()
    if os.fork() == 0:
        telling = []
        for ask in (
            torch.cuda.is_available,
            torch.cuda.is_initialized,
            torch.cuda.current_device,
            lambda: torch.empty(1, device="cuda"),
            torch.cuda.Stream,
            lambda: len(torch.cuda.memory_stats()),
        ):
            try:
                telling.append(str(ask()))
            except Exception as error:
                telling.append(f"{type(error).__name__}: {str(error).splitlines()[0]}")
        os.write(write, "\n".join(telling).encode())
        os._exit(0)
    os.close(write)
    os.wait()
    assert inherited.is_cuda
    return os.read(read, 1 << 16).decode().split("\n")


fact("in a forked child", in_forked_child)
