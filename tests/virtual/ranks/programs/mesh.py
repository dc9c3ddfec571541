"""fully_shard and tensor parallel over a mesh of 2 by 2 ranks, whose groups are split off the job's."""

from virtual.ranks.programs.rank import RANK, run


def work() -> dict[str, object]:
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    def model() -> torch.nn.Sequential:
        torch.manual_seed(0)
        return torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))

    dist.distributed_c10d._get_default_group().bound_device_id = torch.device("cuda", RANK)  # so that it is split
    mesh = init_device_mesh("cuda", (2, 2), mesh_dim_names=("dp", "tp"))
    parts = [torch.randn(8, 16, generator=torch.Generator().manual_seed(number)) for number in range(2)]
    ours, alone = model().cuda(), model()
    parallelize_module(ours, mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    fully_shard(ours, mesh=mesh["dp"])
    for net, batch in ((ours, parts[mesh["dp"].get_local_rank()].cuda()), (alone, torch.cat(parts))):
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        net(batch).square().mean().backward()
        optimizer.step()
    pairs = zip(ours.parameters(), alone.parameters(), strict=True)
    return {"off": max(float((here.full_tensor().cpu() - there).abs().max()) for here, there in pairs)}


run(work)
