"""CUDA tensors through queues of torch.multiprocessing: run by `python -m unstall.virtual`."""

import gc
import json
from pathlib import Path

import torch
import torch.multiprocessing as mp


def work(tasks, answers) -> None:
    first = tasks.get()
    answers.put([str(first.device), first.tolist(), torch.cuda.memory_allocated()])
    first += 1
    answers.put("written")
    view, parameter, empty = tasks.get()
    answers.put([view.tolist(), type(parameter).__name__, list(empty.shape)])
    answers.put(view * 2)
    try:
        answers.put(view.untyped_storage()._share_cuda_())
    except RuntimeError as error:
        answers.put(str(error))
    tasks.get()
    del first, view, parameter
    gc.collect()
    answers.put("freed")
    tasks.get()


def files() -> int:
    return Path("/proc/self/maps").read_text().count("unstall-virtual-gpu")


def main() -> None:
    mp.set_start_method("spawn")
    tasks, answers = mp.Queue(), mp.Queue()
    worker = mp.Process(target=work, args=(tasks, answers))
    worker.start()
    x = torch.arange(4.0, device="cuda")
    before = torch.cuda.memory_allocated()
    tasks.put(x)
    told = {"received": answers.get()}
    answers.get()
    told["written to"] = x.tolist()
    told["same memory"] = torch.cuda.memory_allocated() - before
    rows = torch.arange(6, device="cuda").view(2, 3)
    tasks.put((rows[1:], torch.nn.Parameter(torch.ones(2, device="cuda")), torch.zeros(0, device="cuda")))
    told["view, parameter and empty tensor"] = answers.get()
    told["sent back"] = answers.get().tolist()
    told["sent on"] = answers.get()
    told["files"] = files()
    del x, rows
    tasks.put("free")
    answers.get()
    torch.ones(1, device="cuda").untyped_storage()._share_cuda_()  # looks for what is unused
    told["files after that"] = files()
    tasks.put("end")
    worker.join()
    told["exit code"] = worker.exitcode
    print(json.dumps(told))


if __name__ == "__main__":
    main()
