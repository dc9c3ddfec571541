"""A column-wise and a row-wise linear layer over NCCL: results and gradients, and those of one process."""

from virtual.ranks.programs.rank import WORLD, run


def work() -> dict[str, object]:
    import torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    def model() -> torch.nn.Sequential:
        torch.manual_seed(0)
        return torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))

    batch = torch.randn(8, 16, generator=torch.Generator().manual_seed(1))
    alone = model()
    plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
    ours = parallelize_module(model().cuda(), init_device_mesh("cuda", (WORLD,)), plan)
    out, expected = ours(batch.cuda()), alone(batch)
    for result in (out, expected):
        result.square().mean().backward()
    pairs = [(out, expected)]
    pairs += [
        (here.grad.full_tensor(), there.grad) for here, there in zip(ours.parameters(), alone.parameters(), strict=True)
    ]
    return {"off": max(float((here.detach().cpu() - there.detach()).abs().max()) for here, there in pairs)}


run(work)
