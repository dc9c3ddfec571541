"""fully_shard over NCCL: the parameters after two steps, and those of one process with the data of all ranks."""

from virtual.ranks.programs.rank import RANK, WORLD, run


def work() -> dict[str, object]:
    import torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    def model() -> torch.nn.Sequential:
        torch.manual_seed(0)
        return torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))

    def data(rank: int) -> torch.Tensor:
        return torch.randn(8, 16, generator=torch.Generator().manual_seed(rank))

    mesh = init_device_mesh("cuda", (WORLD,))
    ours, alone = model().cuda(), model()
    for layer in ours:
        fully_shard(layer, mesh=mesh)
    fully_shard(ours, mesh=mesh)
    for net, batch in ((ours, data(RANK).cuda()), (alone, torch.cat([data(rank) for rank in range(WORLD)]))):
        optimizer = torch.optim.AdamW(net.parameters(), 0.01)
        for _ in range(2):
            optimizer.zero_grad()
            net(batch).square().mean().backward()
            optimizer.step()
    pairs = zip(ours.parameters(), alone.parameters(), strict=True)
    return {"off": max(float((here.full_tensor().cpu() - there).abs().max()) for here, there in pairs)}


run(work)
