"""Loops that must see the same with `prefetch` as without. Also run as a program, on any GPU."""

from __future__ import annotations

import copy
import pickle
import random
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader, Dataset, IterableDataset, Sampler

from unstall import prefetch

Wrap = Callable[[Any], Any]
Depth = Any  # "plain", or as `prefetch` takes it


class Numbers(Dataset[torch.Tensor]):
    def __init__(self, size: int = 40, unreadable: tuple[int, ...] = (), draws: bool = False) -> None:
        self.size, self.unreadable, self.draws = size, unreadable, draws

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, at: int) -> torch.Tensor:
        if at in self.unreadable:
            raise LookupError(at)
        return torch.tensor(float(at)) + (torch.rand(()) + random.random() if self.draws else 0.0)


class Endless(IterableDataset[torch.Tensor]):
    def __iter__(self) -> Iterator[torch.Tensor]:
        return iter(torch.arange(40.0).split(1))


def two_iterators(wrap: Wrap) -> Any:
    loader = wrap(DataLoader(Numbers(), batch_size=4))
    return [(one.tolist(), other.tolist()) for one, other in zip(iter(loader), iter(loader), strict=True)]


def a_loop_in_a_loop(wrap: Wrap) -> Any:
    loader = wrap(DataLoader(Numbers(), batch_size=4))
    return [(outer.tolist(), [inner.tolist() for inner in loader]) for outer in loader]


def an_iterator_begun_anew_amid_an_epoch(wrap: Wrap) -> Any:
    loader, said = wrap(DataLoader(Numbers(), batch_size=4)), []
    batches = iter(loader)
    for turn in range(25):
        if turn % 6 == 5:
            batches = iter(loader)
        said.append(next(batches).tolist())
    return said


def samples_that_cannot_be_read(wrap: Wrap) -> Any:
    batches, said = iter(wrap(DataLoader(Numbers(unreadable=(9, 22)), batch_size=4))), []
    while True:
        try:
            said.append(next(batches).tolist())
        except LookupError as error:
            said.append(str(error))
        except StopIteration:
            return said


def draws_between_iter_and_next(wrap: Wrap) -> Any:
    batches = iter(wrap(DataLoader(Numbers(draws=True), batch_size=4, shuffle=True)))
    return float(torch.rand(())), [(batch.tolist(), random.random()) for batch in batches], float(torch.rand(()))


def three_epochs_shuffled(wrap: Wrap) -> Any:
    loader = wrap(DataLoader(Numbers(), batch_size=4, shuffle=True))
    return [([batch.tolist() for batch in loader], float(torch.rand(()))) for _ in range(3)]


def an_iterable_dataset_has_no_length(wrap: Wrap) -> Any:
    loader = wrap(DataLoader(Endless(), batch_size=3))
    try:
        return len(loader)
    except TypeError:
        return [batch.tolist() for batch in loader]


def truth_and_length(wrap: Wrap) -> Any:
    return bool(wrap(iter([torch.ones(1)]))), bool(wrap([])), len(wrap(DataLoader(Numbers()))), list(wrap([]))


class Epochs:
    epoch = 0

    def __iter__(self) -> Iterator[torch.Tensor]:
        return iter([torch.tensor([self.epoch])] * 5)


def attributes_that_are_set(wrap: Wrap) -> Any:
    inner = Epochs()
    loader = wrap(inner)
    loader.epoch = 7
    return inner.epoch, loader.epoch, [int(batch) for batch in loader]


class Resumable(Sampler[int]):
    at = 0

    def __iter__(self) -> Iterator[int]:
        while self.at < 40:
            self.at += 1
            yield self.at - 1
        self.at = 0

    def state_dict(self) -> dict[str, int]:
        return {"at": self.at}


def the_state_of_a_sampler(wrap: Wrap) -> Any:
    sampler = Resumable()
    return [(batch.tolist(), sampler.state_dict()) for batch in wrap(DataLoader(Numbers(), 2, sampler=sampler))]


class Stateful:
    at = 0

    def __iter__(self) -> Iterator[torch.Tensor]:
        while self.at < 20:
            self.at += 1
            yield torch.tensor([self.at])
        self.at = 0

    def state_dict(self) -> dict[str, int]:
        return {"at": self.at}


def states_before_amid_and_after(wrap: Wrap) -> Any:
    loader = wrap(Stateful())
    without = wrap([torch.ones(1)])
    said: list[Any] = [loader.state_dict(), hasattr(without, "state_dict")]
    said += [(int(batch), loader.state_dict()) for batch in loader]
    return [*said, loader.state_dict()]


def modes_of_the_loop(wrap: Wrap) -> Any:
    def products() -> Iterator[torch.Tensor]:
        weights = torch.ones(4, 4, requires_grad=True)
        for _ in range(12):
            yield torch.ones(4, 4) @ weights

    said = []
    for mode in (torch.autocast("cpu", dtype=torch.bfloat16), torch.no_grad(), torch.inference_mode()):
        with mode:
            said += [(batch.dtype, batch.requires_grad, batch.is_inference()) for batch in wrap(products())]
    return said


def copies_of_the_loader(wrap: Wrap) -> Any:
    loader = wrap(DataLoader(Numbers(), batch_size=4))
    next(iter(loader))
    others = pickle.loads(pickle.dumps(loader)), copy.copy(loader), copy.deepcopy(loader)
    return [[batch.tolist() for batch in other] for other in others]


def wrapped_twice(wrap: Wrap) -> Any:
    return [batch.tolist() for batch in wrap(wrap(DataLoader(Numbers(), batch_size=4)))]


def what_is_no_tensor(wrap: Wrap) -> Any:
    return list(wrap(["text", None, 3, {"a": (1, b"2")}] * 4))


def a_loader_that_cannot_begin(wrap: Wrap) -> Any:
    class Missing:
        def __iter__(self) -> Iterator[Any]:
            raise OSError("no such file")

    try:
        return list(wrap(Missing()))
    except OSError as error:
        return str(error)


def an_interrupt_in_the_loader(wrap: Wrap) -> Any:
    def interrupted() -> Iterator[torch.Tensor]:
        yield from torch.arange(8.0).split(1)
        raise KeyboardInterrupt

    said: list[Any] = []
    try:
        said.extend(float(batch) for batch in wrap(interrupted()))
    except KeyboardInterrupt:
        said.append("interrupted")
    return said


def in_another_thread(wrap: Wrap) -> Any:
    said: list[Any] = []
    thread = threading.Thread(target=lambda: said.extend(each.tolist() for each in wrap(DataLoader(Numbers(), 4))))
    thread.start()
    thread.join()
    return said


LOOPS = [
    two_iterators,
    a_loop_in_a_loop,
    an_iterator_begun_anew_amid_an_epoch,
    samples_that_cannot_be_read,
    draws_between_iter_and_next,
    three_epochs_shuffled,
    an_iterable_dataset_has_no_length,
    truth_and_length,
    attributes_that_are_set,
    the_state_of_a_sampler,
    states_before_amid_and_after,
    modes_of_the_loop,
    copies_of_the_loader,
    wrapped_twice,
    what_is_no_tensor,
    a_loader_that_cannot_begin,
    an_interrupt_in_the_loader,
    in_another_thread,
]


def seen_by(loop: Callable[[Wrap], Any], depth: Depth) -> Any:
    torch.manual_seed(0)
    random.seed(0)
    return loop(lambda loader: loader if depth == "plain" else prefetch(loader, depth=depth))


# Of each epoch: batches, after how many it is left (None: never), whether the last raises.
Script = list[tuple[int, int | None, bool]]
SCRIPTS = st.lists(
    st.tuples(st.integers(1, 30), st.sampled_from([None, 1, 3, 9]), st.booleans()), min_size=1, max_size=3
)


def epochs(script: Script, draws: bool, wrap: Wrap) -> Any:
    """What a program sees of a loader that is iterated so, with draws of its own between the batches."""
    said: list[Any] = []

    class Scripted:
        turn = 0

        def __iter__(self) -> Iterator[dict[str, Any]]:
            count, _, fails = script[self.turn]
            self.turn += 1
            for number in range(count):
                if fails and number == count - 1:
                    raise LookupError(number)
                yield {"x": torch.full((3,), float(number)), "at": [number, torch.rand(()) if draws else None]}

        def __len__(self) -> int:
            return sum(count for count, _, _ in script)

    loader = wrap(Scripted())
    for _, left, _ in script:
        try:
            for number, batch in enumerate(loader, 1):
                drawn = batch["at"][1]
                said.append((batch["x"].tolist(), None if drawn is None else float(drawn), float(torch.rand(()))))
                if number == left:
                    break
        except LookupError as error:
            said.append(repr(error))
    return said, len(loader)


def holds_for_any_script(examples: int) -> None:
    """Nothing is lost, doubled or swapped, whatever is raised and wherever a loop is left."""

    @settings(max_examples=examples, deadline=None, database=None)
    @given(SCRIPTS, st.booleans(), st.sampled_from(["auto", 0, 1, 4]))
    def law(script: Script, draws: bool, depth: Depth) -> None:
        def loop(wrap: Wrap) -> Any:
            return epochs(script, draws, wrap)

        assert seen_by(loop, depth) == seen_by(loop, "plain")

    law()


if __name__ == "__main__":
    for each in LOOPS:
        wanted = seen_by(each, "plain")
        for ahead in ("auto", 0, 3):
            if each is the_state_of_a_sampler and ahead == 3:  # it is taken as it is
                continue
            assert seen_by(each, ahead) == wanted, (each.__name__, ahead)
    print("LOOPS", len(LOOPS))
    holds_for_any_script(60)
    print("ANY SCRIPT")
