"""Cases of operators on lists of tensors, as optimizers call them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch

from unstall.virtual.costs.suite.case import Arguments, Build, Case, TensorPool, spread

_LISTS = (
    (1, 256),
    (1, 65536),
    (1, 1 << 20),
    (1, 1 << 23),
    (1, 1 << 25),
    (12, 768),
    (12, 65536),
    (12, 1 << 20),
    (48, 768),
    (48, 1 << 19),
    (100, 64),
    (100, 4096),
    (100, 1 << 17),
    (200, 768),
    (200, 1 << 16),
    (200, 1 << 19),
    (400, 256),
    (400, 32768),
    *spread(30, (1, 400), (64, 1 << 22), most=1 << 25),
)


def cases() -> Iterator[Case]:
    """Yields the cases of operators on lists of tensors."""
    for count, size in _LISTS:
        lists = partial(_lists, count, size)
        one, two, three = lists(1), lists(2), lists(3)
        for name, build, rank in (
            ("_foreach_add_.Scalar", _with(one, 1.0), 0),
            ("_foreach_mul_.Scalar", _with(one, 0.9), 0),
            ("_foreach_add_.List", two, 0),
            ("_foreach_mul_.List", two, 2),
            ("_foreach_lerp_.Scalar", _with(two, 0.1), 0),
            ("_foreach_addcmul_.Scalar", lambda pool, b=two: (*(lists := b(pool)), lists[1], 0.1), 0),
            ("_foreach_addcdiv_.ScalarList", lambda pool, b=three, c=count: (*b(pool), [0.1] * c), 0),
            ("_foreach_div_.ScalarList", lambda pool, b=one, c=count: (*b(pool), [1.1] * c), 0),
            ("_foreach_addcdiv_.Scalar", _with(three, 0.1), 2),
            ("_foreach_sqrt.default", one, 0),
            ("_foreach_neg.default", one, 2),
            ("_foreach_sub.Scalar", _with(one, 0.1), 2),
            ("_foreach_pow.Scalar", _with(one, 2), 3),
            ("_foreach_norm.Scalar", _with(one, 2), 0),
            ("_foreach_mul_.Tensor", lambda pool, b=one: (*b(pool), pool(1)[0]), 0),
            ("_foreach_copy_.default", two, 2),
            ("_foreach_zero_.default", one, 2),
            ("_foreach_maximum_.List", two, 3),
        ):
            yield Case(name, build, rank, hot=())
        for name in ("_fused_adamw_", "_fused_adam_"):
            yield Case(f"{name}.default", partial(_fused_adam, count, size), 1, hot=())
        yield Case("_fused_sgd_.default", partial(_fused_sgd, count, size), 2, hot=())


def _lists(count: int, size: int, lists: int) -> Build:
    return lambda pool: tuple([pool(size) for _ in range(count)] for _ in range(lists))


def _with(build: Build, *rest: object) -> Build:
    return lambda pool: (*build(pool), *rest)


def _fused_adam(count: int, size: int, pool: TensorPool) -> Arguments:
    lists = [[pool(size) for _ in range(count)] for _ in range(4)]
    steps = [torch.ones((), device=pool.device) for _ in range(count)]
    options = {
        "lr": 1e-3,
        "beta1": 0.9,
        "beta2": 0.99,
        "weight_decay": 0.01,
        "eps": 1e-8,
        "amsgrad": False,
        "maximize": False,
    }
    return (*lists, [], steps, options)


def _fused_sgd(count: int, size: int, pool: TensorPool) -> Arguments:
    lists = [[pool(size) for _ in range(count)] for _ in range(3)]
    options = {
        "weight_decay": 0.0,
        "momentum": 0.9,
        "lr": 1e-3,
        "dampening": 0.0,
        "nesterov": False,
        "maximize": False,
        "is_first_step": False,
    }
    return (*lists, options)
