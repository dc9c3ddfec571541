"""What child processes of several kinds see of the GPU; the last line is JSON."""

import json
import os
import subprocess
import sys
import time
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset


class Numbers(Dataset):  # type: ignore[misc]
    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> torch.Tensor:
        before = time.perf_counter()
        time.sleep(0.002)
        return torch.tensor([float(index), float(0.002 <= time.perf_counter() - before < 1)])


def spawned(queue: Any) -> None:
    queue.put(torch.ones(2, device="cuda").sum().item())


if __name__ == "__main__":
    torch.ones(1, device="cuda")
    told: dict[str, Any] = {}
    for how in ("fork", "spawn"):
        loader = DataLoader(Numbers(), batch_size=2, num_workers=1, multiprocessing_context=how, pin_memory=True)
        told[how] = torch.stack([batch.to("cuda", non_blocking=True).sum(0) for batch in loader]).sum(0).tolist()
    context = torch.multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=spawned, args=(queue,))
    process.start()
    told["process"] = queue.get(timeout=120)
    process.join()
    ask = "import torch; print(torch.cuda.get_device_name())"
    told["python"] = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True).stdout
    read, write = os.pipe()
    if not os.fork():
        try:
            torch.ones(1, device="cuda")
        except RuntimeError as error:
            os.write(write, str(error).encode())
        os._exit(0)
    os.wait()
    told["forked"] = os.read(read, 1000).decode()
    print(json.dumps(told))
