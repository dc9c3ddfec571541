"""Loops whose reserved memory grows. If the allocated memory grows as well, the program keeps tensors: that is a leak.

A list of losses keeps all tensors that their gradients would need. An exception that is kept has a traceback, which
keeps the variables of the functions that it left.
"""

import torch

MIB = 2**20
model = torch.nn.Sequential(*[torch.nn.Linear(1024, 1024, device="cuda") for _ in range(4)])


def loss_of(rows=2048):
    return model(torch.randn(rows, 1024, device="cuda")).square().mean()


def a_step_that_fails():
    loss = loss_of()
    raise ValueError(f"a loss of {loss.numel()} elements is refused")


def error_of():
    try:
        a_step_that_fails()
    except ValueError as error:
        return error


loops = {
    "growing inputs": lambda number: loss_of(1024 * number).shape,  # gone after this line
    "a list of losses": lambda number: loss_of(),  # each has its graph
    "a list of losses, detached": lambda number: loss_of().detach(),
    "a list of errors": lambda number: error_of(),  # each has its traceback
    "a list of errors, as text": lambda number: str(error_of()),
}
for name, step in loops.items():
    kept = [step(1)]
    torch.cuda.empty_cache()
    allocated, reserved = torch.cuda.memory_allocated(), torch.cuda.memory_reserved()
    kept += [step(number) for number in range(2, 11)]
    print(f"{name}, allocated grows by: {(torch.cuda.memory_allocated() - allocated) / MIB:.1f} MiB")
    print(f"{name}, reserved grows by: {(torch.cuda.memory_reserved() - reserved) / MIB:.1f} MiB")
    del kept
