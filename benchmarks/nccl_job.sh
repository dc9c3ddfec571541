# A job of two real GPUs with NCCL: step times, traces with and without a straggler, and what `unstall fleet` says of them.
#
#     OUT=/tmp/out bash benchmarks/nccl_job.sh
#
# Rank 1 sleeps for 8 ms in each step, or reads 20 values. The device hides the sleep.
set -u
export PYTHONPATH=$PWD/src:$PWD
OUT=${OUT:-/tmp/out}; mkdir -p $OUT
python -c "import datetime, torch; print(datetime.date.today(), torch.__version__, torch.cuda.device_count(), torch.cuda.get_device_name(), torch.cuda.nccl.version())" | tee $OUT/about.txt
JOB=$(mktemp -d); cat > $JOB/ddp_real.py <<'EOF'
"""DDP on 2 ranks, device-bound; CAUSE plants a straggler on rank 1."""
import os, sys, time
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

CAUSE = os.environ.get("CAUSE", "")
STEPS, BATCH, WIDTH, LAYERS = 30, 8192, 4096, 6


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = torch.nn.Linear(WIDTH, WIDTH), torch.nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return x + self.down(torch.nn.functional.gelu(self.up(x)))


def load(late):
    if late and CAUSE == "sleep":
        time.sleep(0.008)
    return torch.randn(BATCH, WIDTH, device="cuda", dtype=torch.bfloat16)


def watch(x, late):
    if late and CAUSE == "item":
        for row in x[:20]:
            row.float().norm().item()
    return x


def main():
    rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
    torch.manual_seed(0)
    model = torch.nn.Sequential(*[Block() for _ in range(LAYERS)]).cuda().bfloat16()
    model = DistributedDataParallel(model, bucket_cap_mb=64)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    late = rank == 1
    ends = []
    for step in range(STEPS):
        x = load(late)
        optimizer.zero_grad()
        out = watch(model(x), late)
        out.square().mean().backward()
        optimizer.step()
        ends.append(torch.cuda.Event(enable_timing=True))
        ends[-1].record()
    torch.cuda.synchronize()
    took = [a.elapsed_time(b) for a, b in zip(ends[9:], ends[10:])]
    took.sort()
    print(f"STEP {CAUSE or 'none'} rank {rank}: median {took[len(took)//2]:.3f} ms, min {took[0]:.3f}, max {took[-1]:.3f}", flush=True)
    dist.destroy_process_group()


main()
EOF
cat > $JOB/busbw.py <<'EOF'
"""All-reduce, all-gather and reduce-scatter of 1 MiB to 256 MiB: microseconds each, as nccl-tests measures (bus bandwidth in GB/s)."""
import os, torch, torch.distributed as dist
rank = int(os.environ["LOCAL_RANK"]); torch.cuda.set_device(rank)
dist.init_process_group("nccl", device_id=torch.device("cuda", rank)); n = dist.get_world_size()
for mib in (0.0001, 0.01, 0.1, 1, 4, 16, 64, 256):
    size = max(int(mib * 2**20) // 2 // n * n, n)
    a = torch.zeros(size, dtype=torch.bfloat16, device="cuda"); part = a.view(n, -1)[rank].clone()
    for name, call, factor in (("all_reduce", lambda: dist.all_reduce(a), 2 * (n - 1) / n),
                               ("all_gather", lambda: dist.all_gather_into_tensor(a, part), (n - 1) / n),
                               ("reduce_scatter", lambda: dist.reduce_scatter_tensor(part, a), (n - 1) / n)):
        for _ in range(5): call()
        torch.cuda.synchronize(); start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for _ in range(20): call()
        end.record(); torch.cuda.synchronize(); us = start.elapsed_time(end) * 50
        if rank == 0: print(f"BUS {name} {size * 2} bytes: {us:.1f} us, {size * 2 / us / 1e3 * factor:.1f} GB/s", flush=True)
dist.destroy_process_group()
EOF
cd $JOB
export OMP_NUM_THREADS=4
T="python -m torch.distributed.run --standalone --nproc-per-node 2"
( timeout 25 $T busbw.py ) 2>&1 | grep -E 'BUS|Error' | tee $OUT/busbw.txt
for cause in "" sleep item; do
  name=${cause:-none}
  CAUSE=$cause timeout 25 $T ddp_real.py 2>&1 | grep -E 'STEP|Error' | tee -a $OUT/plain.txt
  mkdir -p $JOB/$name; cd $JOB/$name; cp ../ddp_real.py .
  CAUSE=$cause timeout 40 $T -m unstall run -q ddp_real.py > $OUT/run-$name.txt 2>&1; grep STEP $OUT/run-$name.txt
  ls -la . >> $OUT/run-$name.txt
  cd $JOB
done
for name in none sleep item; do
  timeout 30 python -m unstall fleet $JOB/$name --edit no-stragglers > $OUT/fleet-$name.txt 2>&1
  timeout 30 python -m unstall fleet $JOB/$name --edit no-stragglers -q -o $OUT/fleet-$name.json > /dev/null 2>&1
  cat $OUT/fleet-$name.txt
  cp $JOB/$name/*.trace.json.gz $OUT/ 2>/dev/null; for f in $OUT/ddp_real-rank*.gz; do [ -f $f ] && mv $f $OUT/$name-$(basename $f); done
done
ls -la $OUT
