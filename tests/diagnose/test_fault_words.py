"""What faults are in words: which value was wrong, and what to do for each known cause."""

from __future__ import annotations

from typing import Any

import pytest

from unstall.diagnose.fault_words import advice, what_is_wrong
from unstall.result import Fault, FaultKind, WrongValue


def fault(
    kind: FaultKind,
    value: int | float | str,
    *,
    bound: int | None = None,
    least: int | None = 0,
    argument: str = "index",
    kernel: str = "aten::gather",
    operator: str | None = None,
    position: tuple[int, ...] = (5,),
    count: int = 1,
) -> Fault:
    wrong = WrongValue(argument=argument, value=value, position=position, least=least, bound=bound, count=count, of=64)
    return Fault(kind=kind, kernel=kernel, operator=operator or kernel, check="said the kernel", wrong=wrong, device=0)


EMBEDDING: dict[str, Any] = {"operator": "aten::embedding", "kernel": "aten::index_select"}
LOSS: dict[str, Any] = {"kernel": "aten::nll_loss_forward", "argument": "target"}
DRAW: dict[str, Any] = {"kernel": "aten::multinomial", "argument": "self", "least": None}
BCE: dict[str, Any] = {"kernel": "aten::binary_cross_entropy", "argument": "self", "least": None}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (fault("index", 1063, bound=1024, **EMBEDDING), "index 1063 at [5] is out of bounds for a table of 1024 rows"),
        (fault("index", 9, bound=4, position=()), "index 9 is out of bounds for a size of 4"),
        (
            fault("index", 9, bound=4, least=-4, argument="indices[1]", kernel="aten::index"),
            "index 9 at [5] is out of bounds for dimension 1 of size 4, which takes -4 to 3",
        ),
        (
            fault("index", -1, bound=8, count=3),
            "index -1 at [5] is out of bounds for a size of 8 (3 of 64 indices are wrong)",
        ),
        (fault("class", 10, bound=10, **LOSS), "class 10 at [5] is out of bounds for 10 classes"),
        (fault("probability", 2.5, position=(0, 3), **BCE), "value 2.5 at [0, 3] is outside 0 to 1"),
        (fault("probability", "nan", position=(0, 3), **BCE), "value NaN at [0, 3] is outside 0 to 1"),
        (fault("weight", "nan", position=(1, 0), **DRAW), "the weight at [1, 0] is NaN"),
        (
            fault("weight", 0.0, **{**DRAW, "argument": "self.sum(-1)"}, position=(2,)),
            "the weights of row 2 add up to 0",
        ),
        (
            fault("other", -3.0, kernel="aten::poisson", argument="self", least=None),
            "value -3 at [5]: said the kernel",
        ),
    ],
)
def test_the_wrong_value_in_words(given: Fault, words: str) -> None:
    assert what_is_wrong(given) == words


def test_without_a_value_it_is_the_kernels_own_words() -> None:
    assert what_is_wrong(Fault(kind="assertion", check="loss must be finite", device=0)) == "loss must be finite"
    assert what_is_wrong(Fault(kind="other", check="", device=0)) == "what was wrong is not known"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (fault("index", 1024, bound=1024, **EMBEDDING), "num_embeddings=1025"),
        (fault("index", 1500, bound=1024, **EMBEDDING), "num_embeddings > 1500"),
        (fault("index", -1, bound=1024, **EMBEDDING), "ids.min() >= 0"),
        (fault("index", 4, bound=4), "too large by one"),
        (fault("index", -1, bound=4), "gather, scatter and index_select take no negative index"),
        (fault("index", -9, bound=4, least=-4, argument="indices[0]"), "it is too low"),
        (fault("index", 77, bound=4), "it must be below 4"),
        (fault("class", 10, bound=10, **LOSS), "subtract 1 if they count from 1"),
        (fault("class", 255, bound=10, **LOSS), "ignore_index=255"),
        (fault("class", -1, bound=10, **LOSS), "ignore_index=-1"),
        (fault("class", 14, bound=10, **LOSS), "at least 15 for this label"),
        (fault("probability", 2.5, **BCE), "binary_cross_entropy_with_logits"),
        (fault("probability", 2.5, **{**BCE, "argument": "target"}), "targets must be 0 to 1"),
        (fault("probability", 2.5, **{**BCE, "kernel": "aten::bernoulli"}), "apply sigmoid or softmax"),
        (fault("weight", "nan", **DRAW), "torch.isfinite(logits)"),
        (fault("weight", -0.5, **DRAW), "not logits"),
        (fault("weight", 0.0, **{**DRAW, "argument": "self.sum(-1)"}), "leave at least one weight above 0"),
    ],
)
def test_each_known_cause_has_its_advice(given: Fault, words: str) -> None:
    assert words in advice(given)


@pytest.mark.parametrize("kind", ["index", "class", "probability", "weight", "assertion", "other"])
def test_advice_does_without_the_value(kind: FaultKind) -> None:
    assert len(advice(Fault(kind=kind, check="", device=0))) > 20
