"""A pipeline of one layer for each rank over NCCL, with the schedule 1F1B: its gradients, and those of one process."""

from virtual.ranks.programs.rank import RANK, WORLD, run

PARTS, ROWS, WIDTH = 8, 16, 8


def work() -> dict[str, object]:
    import torch
    import torch.distributed as dist
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    def layers() -> list[torch.nn.Module]:
        torch.manual_seed(0)
        return [torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.Tanh()) for _ in range(WORLD)]

    def loss_of(out: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return (out - target).square().mean()

    batch = torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(1))
    target = torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(2))
    mine = layers()[RANK].cuda()
    stage = PipelineStage(mine, RANK, WORLD, torch.device("cuda", RANK))
    schedule = Schedule1F1B(stage, PARTS, loss_fn=loss_of)
    losses: list[torch.Tensor] = []
    if RANK == 0:
        schedule.step(batch.cuda())
    elif RANK == WORLD - 1:
        schedule.step(target=target.cuda(), losses=losses)
    else:
        schedule.step()
    dist.barrier()
    alone = layers()
    torch.nn.Sequential(*alone)(batch).sub(target).square().mean().backward()
    pairs = zip(mine.parameters(), alone[RANK].parameters(), strict=True)
    told = {"off": max(float((here.grad.cpu() - there.grad).abs().max()) for here, there in pairs)}
    return told | ({"loss": float(torch.stack(losses).mean())} if losses else {})


run(work)
