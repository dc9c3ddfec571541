"""Forked children, and threads beside each other."""

import os
import threading
from collections.abc import Callable

import torch
from virtual.torch_cuda.programs.telling import fact

MODES = ("global", "thread_local", "relaxed")


class Numbers(torch.utils.data.Dataset):  # type: ignore[misc]
    """On the host alone."""

    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int) -> object:
        return torch.full((4,), float(index))


def first_line(doing: Callable[[], object]) -> str:
    try:
        doing()
    except Exception as error:
        return str(error).splitlines()[0]
    return "fine"


def in_a_child(doing: Callable[[], object]) -> str:
    """What it says there."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, first_line(doing).encode())
        os._exit(0)
    os.waitpid(child, 0)
    return os.read(reading, 1000).decode()


def inherited() -> object:
    x, host = torch.ones(4, device="cuda"), torch.zeros(4)
    one = x.sum()
    asked = (lambda: x.add_(1), one.item, x.cpu, lambda: host.copy_(x), lambda: x.copy_(host))
    return [in_a_child(each) for each in asked] + [in_a_child(lambda: (host * 2).sum().item())]


def busy_threads() -> object:
    """Batches by workers, and children, that are forked while threads use the GPU."""
    over = threading.Event()

    def work() -> None:
        x, dropout = torch.ones(16, device="cuda"), torch.nn.Dropout(0.5)
        while not over.is_set():
            dropout(x.add_(1))
            torch.empty(1000).pin_memory()

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    loader = torch.utils.data.DataLoader(Numbers(), batch_size=4, num_workers=2)
    total = sum(batch.sum().item() for batch in loader)
    children = {in_a_child(lambda: (torch.ones(8) * 2).sum()) for _ in range(20)}
    over.set()
    for thread in threads:
        thread.join()
    return [total, sorted(children)]


def captured_beside(mode: str, elsewhere: bool) -> object:
    """What item() says within a capture, here or in another thread, and what the capture says then."""
    x, y, graph = torch.ones(4, device="cuda"), torch.zeros(4, device="cuda"), torch.cuda.CUDAGraph()
    said = []

    def ask() -> None:
        said.append(first_line(lambda: x.sum().item()))

    def capture() -> None:
        with torch.cuda.graph(graph, capture_error_mode=mode):
            y.add_(1)
            if elsewhere:
                thread = threading.Thread(target=ask)
                thread.start()
                thread.join()
            else:
                ask()

    said.append(first_line(capture))
    torch.cuda.set_stream(torch.cuda.default_stream())
    return said


def random_beside() -> object:
    """Whether the host's random numbers stay as they are, whatever draws on the GPU from two threads."""
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    x, dropout = torch.ones(100_000, device="cuda"), torch.nn.Dropout(0.5)
    threads = [threading.Thread(target=lambda: [dropout(x) for _ in range(50)]) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return torch.equal(torch.rand(3), expected)


def sums_of_threads() -> bool:
    """Whether a product has the same bits on a thread that is to compute with one thread, as a loader's."""
    torch.manual_seed(0)
    one, other = torch.randn(10, 16, device="cuda"), torch.randn(16, 512, device="cuda")
    expected, found = (one @ other).cpu(), []

    def product() -> None:
        torch.set_num_threads(1)
        found.append((one @ other).cpu())

    thread = threading.Thread(target=product)
    thread.start()
    thread.join()
    return torch.equal(found[0], expected)


fact("inherited", inherited)
fact("busy threads", busy_threads)
for mode in MODES:
    for elsewhere in (False, True):
        fact(f"{mode} {elsewhere}", lambda mode=mode, elsewhere=elsewhere: captured_beside(mode, elsewhere))
fact("random beside", random_beside)
fact("sums of threads", sums_of_threads)
