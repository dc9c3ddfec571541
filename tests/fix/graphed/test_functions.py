"""Functions served by graphs give what they give without, whatever they do with their arguments and surroundings."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from fix.graphed.harness import grad_of, on_tape
from fix.graphed.tape import TapeDevice
from torch.autograd import forward_ad
from torch.utils._python_dispatch import _get_current_dispatch_mode, _get_current_dispatch_mode_stack

from unstall.errors import GraphedError, UsageError
from unstall.fix.graphs import serving
from unstall.rounding.operators import Operators

_WEIGHT = torch.randn(4, 4, generator=torch.Generator().manual_seed(3))


def _numbers(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def _returns_views(x: torch.Tensor) -> Any:
    left, right = (x @ _WEIGHT).chunk(2, dim=1)
    return {"left": left, "right": (right, 3)}


def _writes_its_argument(x: torch.Tensor) -> torch.Tensor:
    x.mul_(2)
    return x.sum()


def _returns_its_argument(x: torch.Tensor) -> Any:
    return x, x + 1, _WEIGHT


def _branches(x: torch.Tensor) -> torch.Tensor:
    return torch.cat([(x @ _WEIGHT).relu(), (x - 1) @ _WEIGHT, x.tanh()], 1)


@pytest.mark.parametrize("function", [_returns_views, _writes_its_argument, _returns_its_argument, _branches])
def test_results_are_those_of_eager(function: Callable[..., Any]) -> None:
    fast = on_tape(function)
    for seed in range(6):
        mine, theirs = _numbers(3, 4, seed=seed), _numbers(3, 4, seed=seed)
        expected, found = function(mine), fast(theirs)
        torch.testing.assert_close(found, expected, rtol=0, atol=0)
        assert torch.equal(mine, theirs)
    assert fast.stats().hits == 4


def test_results_are_the_callers_own() -> None:
    fast = on_tape(lambda x: (x @ _WEIGHT).relu())
    results = [fast(_numbers(2, 4, seed=seed)) for seed in range(6)]
    assert torch.equal(results[3], (_numbers(2, 4, seed=3) @ _WEIGHT).relu())


def test_views_of_one_memory_stay_views_of_one_memory() -> None:
    fast = on_tape(_returns_views)
    for _ in range(4):
        found = fast(_numbers(3, 4))
    found["left"].zero_()
    assert found["left"].untyped_storage().data_ptr() == found["right"][0].untyped_storage().data_ptr()


def test_an_argument_that_is_returned_is_the_callers() -> None:
    fast = on_tape(_returns_its_argument)
    for _ in range(4):
        x = _numbers(3, 4)
        found = fast(x)
    assert found[0] is x
    assert found[2] is _WEIGHT


@pytest.mark.parametrize("stride", [(4, 1), (1, 3), (0, 1), (8, 2)])
def test_strides_are_kept(stride: tuple[int, int]) -> None:
    seen: list[tuple[int, ...]] = []

    def function(x: torch.Tensor) -> torch.Tensor:
        seen[:] = [x.stride()]
        return x.exp().sum(0)

    fast = on_tape(function, strict=False)
    for seed in range(4):
        x = _numbers(40, seed=seed).as_strided((3, 4), stride)
        assert torch.equal(fast(x), x.exp().sum(0))
    assert seen == [stride]


def test_each_shape_dtype_and_value_has_its_own_graph() -> None:
    fast = on_tape(lambda x, scale, *, shift=None: x * scale if shift is None else x * scale + shift)
    for _ in range(4):
        for size in (2, 3):
            assert torch.equal(fast(torch.ones(size), 2.0), torch.full((size,), 2.0))
            assert torch.equal(fast(torch.ones(size), 3.0), torch.full((size,), 3.0))
        assert torch.equal(fast(torch.ones(2), 2.0, shift=torch.ones(2)), torch.full((2,), 3.0))
        assert fast(torch.ones(2, dtype=torch.float64), 2.0).dtype == torch.float64
    assert fast.stats().captures == 6


def test_of_more_than_max_graphs_the_one_used_longest_ago_goes() -> None:
    fast = on_tape(lambda x: x.exp() + 1, max_graphs=2)
    for size in (2, 3, 4):
        for _ in range(4):
            fast(torch.ones(size))
    stats = fast.stats()
    assert [graph.shapes for graph in stats.graphs] == [((3,),), ((4,),)]
    assert (stats.captures, stats.evictions) == (3, 1)
    assert "1 graph evicted, least recently used first: a larger max_graphs keeps more" in stats.text
    assert "evicted" not in on_tape(lambda x: x).stats().text


def _called_with_sizes(fast: Any, sizes: range) -> None:
    for size in sizes:
        assert torch.equal(fast(torch.ones(size)), torch.ones(size).exp() + 1)


def test_arguments_that_never_come_again_are_observed_a_few_times_and_told() -> None:
    observed: list[bool] = []

    def function(x: torch.Tensor) -> torch.Tensor:
        observed.append(bool(_get_current_dispatch_mode_stack()))
        return x.exp() + 1

    fast = on_tape(function)
    with pytest.warns(RuntimeWarning, match="sizes change, as from 15 to 16; pad them to a few sizes") as told:
        _called_with_sizes(fast, range(1, 41))
    assert (len(told), sum(observed), len(observed)) == (1, 8, 40)


def test_one_that_comes_again_after_all_gets_a_graph() -> None:
    fast = on_tape(lambda x: x.exp() + 1)
    with pytest.warns(RuntimeWarning, match="other arguments"):
        _called_with_sizes(fast, range(1, 21))
    for _ in range(4):
        fast(torch.ones(20))
    assert (fast.stats().captures, fast.stats().refusals) == (1, ())


def test_until_there_is_a_graph_stats_say_what_it_waits_for() -> None:
    fast = on_tape(lambda x: x.exp() + 1)
    assert ":" not in fast.stats().text
    for size in (2, 3, 4):
        fast(torch.ones(size))
    assert "the first of each shape is observed, and the next one is captured" in fast.stats().text
    fast(torch.ones(4))
    assert "looks at" not in fast.stats().text


def test_random_numbers_are_those_of_eager_and_so_are_the_next() -> None:
    def drops(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.dropout(x.exp(), 0.5) + torch.rand_like(x)

    fast = on_tape(drops)
    torch.manual_seed(5)
    expected = [drops(torch.ones(8)) for _ in range(6)] + [torch.rand(3)]
    torch.manual_seed(5)
    found = [fast(torch.ones(8)) for _ in range(6)] + [torch.rand(3)]
    assert all(map(torch.equal, expected, found))
    assert fast.stats().hits == 4


def test_a_generator_of_the_functions_own_goes_on_as_in_eager() -> None:
    own = torch.Generator()
    fast = on_tape(lambda x: x + torch.randn(x.shape, generator=own))
    own.manual_seed(5)
    expected = [torch.ones(8) + torch.randn(8, generator=own) for _ in range(6)]
    own.manual_seed(5)
    assert all(map(torch.equal, expected, [fast(torch.ones(8)) for _ in range(6)]))


@pytest.mark.parametrize("lanes", [(), (2,)])
@pytest.mark.parametrize("differentiable", [False, True])
def test_what_counts_its_calls_never_indexes_beyond_them(differentiable: bool, lanes: tuple[int, ...]) -> None:
    def program(run: Callable[[Callable[..., Any]], Any]) -> list[torch.Tensor]:
        rows, count = torch.zeros(8, 4), torch.zeros(1, dtype=torch.int64)

        def appends(x: torch.Tensor) -> torch.Tensor:
            rows.index_copy_(0, count, x.detach())
            scaled = x * rows.index_select(0, count)
            count.add_(1)
            return scaled.sin() + scaled.cos()

        fast, given = run(appends), [rows, count]
        for seed in range(8):
            x = _numbers(1, 4, seed=seed).requires_grad_(differentiable)
            result = fast(x)
            given.append(result.detach())
            if differentiable:
                result.sum().backward()
                given.append(grad_of(x))
        return given

    made: list[Any] = []

    def served(function: Callable[..., Any]) -> Any:
        made.append(on_tape(function, lanes=lanes))
        return made[0]

    found = program(served)
    assert all(map(torch.equal, found, program(lambda function: function)))
    assert made[0].stats().hits == 6


def test_a_replaced_tensor_of_a_closure_is_noticed() -> None:
    weight = torch.ones(4)

    def function(x: torch.Tensor) -> torch.Tensor:
        return (x * weight).exp()

    fast = on_tape(function)
    for _ in range(4):
        fast(torch.ones(4))
    weight = torch.zeros(4)
    assert [fast(torch.ones(4)).sum().item() for _ in range(4)] == [4.0] * 4
    assert fast.stats().captures == 2


def test_an_index_into_a_larger_table_than_that_of_the_graph_is_in_bounds() -> None:
    model = torch.nn.Sequential(torch.nn.Embedding(4, 3), torch.nn.Linear(3, 2)).requires_grad_(False)
    fast = on_tape(model)
    for _ in range(5):
        fast(torch.tensor([0, 1, 3]))
    assert fast.stats().hits == 3
    model[0] = torch.nn.Embedding(10, 3).requires_grad_(False)
    indices = torch.tensor([9, 1, 2])
    assert torch.equal(fast(indices), model(indices))


def test_other_memory_under_the_same_tensor_is_noticed() -> None:
    weight = torch.nn.Parameter(torch.ones(4))
    fast = on_tape(torch.no_grad()(lambda x: (x * weight).exp()))
    for _ in range(4):
        fast(torch.ones(4))
    weight.data = torch.zeros(4)
    assert [fast(torch.ones(4)).sum().item() for _ in range(4)] == [4.0] * 4


def test_a_changed_attribute_is_noticed() -> None:
    class Scaler:
        factor = 1.0
        unrelated = 0

        def __init__(self) -> None:
            self.factor = 2.0
            self.unrelated = 0

        def __call__(self, x: torch.Tensor) -> torch.Tensor:
            return (x * self.factor).exp()

    scaler = Scaler()
    fast = on_tape(scaler)
    for _ in range(4):
        fast(torch.zeros(4))
        scaler.unrelated += 1
    scaler.factor = 0.0
    assert [fast(torch.ones(4)).sum().item() for _ in range(4)] == [4.0] * 4
    assert fast.stats().captures == 2


def test_what_changes_between_all_calls_is_refused_by_name() -> None:
    settings = {"shift": 0.0}
    fast = on_tape(lambda x: x.exp() + settings["shift"], strict=False)
    with pytest.warns(RuntimeWarning, match=r"changes between calls: settings\['shift'\] was"):  # noqa: PT031
        for call in range(20):
            settings["shift"] = float(call // 3)
            assert fast(torch.zeros(1)).item() == 1.0 + call // 3


def test_a_count_that_goes_on_at_each_call_is_refused_by_name() -> None:
    class Counting:
        def __init__(self) -> None:
            self.count = 0

        def __call__(self, x: torch.Tensor) -> torch.Tensor:
            self.count += 1
            return x.exp() + self.count

    counting = Counting()
    fast = on_tape(counting, strict=False)
    with pytest.warns(RuntimeWarning, match="changes the program's own state at each call, .*count was 2 and is 3"):
        results = [fast(torch.zeros(1)).item() for _ in range(6)]
    assert results == [2.0, 3.0, 4.0, 5.0, 6.0, 7.0]
    assert fast.stats().captures == 0


def test_a_result_that_is_also_kept_in_a_list_is_refused() -> None:
    kept: list[torch.Tensor] = []

    def function(x: torch.Tensor) -> torch.Tensor:
        kept.append(x.exp())
        return kept[-1]

    fast = on_tape(function, strict=False)
    with pytest.warns(RuntimeWarning, match="kept had 2 items and has 3"):  # noqa: PT031
        for _ in range(5):
            fast(torch.zeros(1))
    assert len(kept) == 5


def test_one_call_in_several_that_changes_state_leaves_the_others_to_their_graph() -> None:
    filled = {"first": False}  # as a cache of transformers' keeps it for each prompt

    def function(x: torch.Tensor) -> torch.Tensor:
        if not filled["first"]:
            filled["first"] = True
            return x.exp()
        return x.sin().cos().exp()

    fast = on_tape(function)
    for _ in range(5):
        filled["first"] = False
        x = torch.randn(3)
        assert torch.equal(fast(x), x.exp())
        for _ in range(4):
            assert torch.equal(fast(x), x.sin().cos().exp())
    assert fast.stats().captures == 1
    assert fast.stats().hits == 3 + 4 * 4


def test_a_hidden_host_value_is_found_by_replaying() -> None:
    begun = time.perf_counter()  # a clock: nothing that can be looked at
    fast = on_tape(lambda x: x.exp() + (time.perf_counter() - begun), strict=False)
    with pytest.warns(RuntimeWarning, match=r"replayed, it gives something else .*: its result differs by"):  # noqa: PT031
        for _ in range(4):
            fast(torch.zeros(1))
    assert fast.stats().captures == 0


@torch.library.custom_op("unstall_tests::sum_in_any_order", mutates_args=())
def sum_in_any_order(x: torch.Tensor) -> torch.Tensor:
    """As kernels that add by atomics do."""
    total = torch.zeros_like(x[0])
    for place in _ORDER.sample(range(len(x)), len(x)):
        total += x[place]
    return total


def test_elements_that_vary_excuse_no_others() -> None:
    begun = time.perf_counter()

    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.cat([sum_in_any_order(x), x[0, :1] * 0 + (time.perf_counter() - begun)])

    x = torch.cat([sign * (torch.rand(40, 16) + 1e4) for sign in (1, -1)])
    fast = on_tape(function, strict=False)
    with pytest.warns(RuntimeWarning, match=r"replayed, it gives something else .*: its result differs by"):  # noqa: PT031
        for _ in range(4):
            fast(x)
    assert fast.stats().captures == 0


@torch.library.custom_op("unstall_tests::rounded_now_and_then", mutates_args=())
def rounded_now_and_then(x: torch.Tensor) -> torch.Tensor:
    return torch.nextafter(x, x + 1) if _ORDER.random() < 0.5 else x.clone()


_ORDER = random.Random(3)


def test_bits_that_differ_only_now_and_then_are_looked_for_in_several_runs() -> None:
    served = []
    for _ in range(5):
        fast = on_tape(lambda x: rounded_now_and_then(x.exp()).neg(), strict=False)
        for _ in range(6):
            fast(torch.ones(3))
        served.append(fast.stats().hits > 0)
    assert all(served)


def test_a_replay_may_differ_from_eager_by_as_much_as_replays_do() -> None:
    """Where large terms cancel, the order of a sum is worth more than roundings of the sum."""
    x = torch.cat([sign * (torch.rand(40, 16) + 1e4) for sign in (1, -1)])
    fast = on_tape(lambda x: sum_in_any_order(x).neg().neg())
    for _ in range(6):
        fast(x)
    assert fast.stats().hits == 4
    assert not fast.stats().graphs[0].repeatable


def test_a_gradient_that_a_hidden_host_value_changes_is_called_one() -> None:
    begun = time.perf_counter()
    weight = torch.ones(1, requires_grad=True)

    def step(x: torch.Tensor) -> torch.Tensor:
        weight.grad = None
        (weight * x * (time.perf_counter() - begun)).sum().backward()
        return x.exp()

    fast = on_tape(step, strict=False)
    with pytest.warns(RuntimeWarning, match=r"replayed, it gives something else .*: a gradient differs by"):  # noqa: PT031
        for _ in range(4):
            fast(torch.ones(1))


def test_of_what_asks_whether_it_is_captured_it_says_so_and_names_what_is_more_than_rounding() -> None:
    begun = time.perf_counter()

    def function(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        assert not (x.is_cuda and torch.cuda.is_current_stream_capturing())
        since = time.perf_counter() - begun
        return x.double().exp() + since * 1e-14, x.exp() + since

    fast = on_tape(function, strict=False)
    with pytest.warns(RuntimeWarning, match=r"tensor 1 of its result differs .*; it asks whether it is captured"):  # noqa: PT031
        for _ in range(4):
            fast(torch.zeros(1))
    assert fast.stats().captures == 0


def _softmax(x: torch.Tensor, *, more: float = 0.0, fails: bool = False) -> torch.Tensor:
    """Computed otherwise while it is captured, for which it asks."""
    assert not (x.is_cuda and torch.cuda.is_current_stream_capturing())
    mode = _get_current_dispatch_mode()
    if fails and isinstance(mode, Operators):
        raise ValueError("no errors, please")
    if type(mode).__name__ != "_Recording":
        return x.exp().neg().neg().softmax(-1)
    made = x.exp().exp()
    return made / made.sum(-1, keepdim=True) * (1 + more)


def test_what_asks_whether_it_is_captured_may_differ_by_rounding() -> None:
    fast = on_tape(_softmax)
    x = torch.rand(16, 50)
    for _ in range(4):
        fast(x)
    assert not torch.equal(fast(x), _softmax(x))
    assert fast.stats().hits == 3


def test_what_asks_whether_it_is_captured_may_differ_by_no_more_than_rounding() -> None:
    fast = on_tape(lambda x: _softmax(x, more=1e-5), strict=False)
    with pytest.warns(RuntimeWarning, match=r"its result differs by .*; it asks whether it is captured"):  # noqa: PT031
        for _ in range(4):
            fast(torch.rand(16, 50))
    assert fast.stats().captures == 0


def test_if_rounding_cannot_be_measured_no_other_bits_are_accepted() -> None:
    fast = on_tape(lambda x: _softmax(x, fails=True), strict=False)
    with pytest.warns(RuntimeWarning, match=r"cannot be measured: .* raises ValueError: no errors, please"):  # noqa: PT031
        for _ in range(4):
            fast(torch.rand(16, 50))
    assert fast.stats().captures == 0


def test_drawing_from_the_hosts_random_generator_is_refused() -> None:
    fast = on_tape(lambda x: x.exp() * random.random())
    fast(torch.zeros(1))
    with pytest.raises(GraphedError, match="it draws from Python's random"):
        fast(torch.zeros(1))


def test_what_strict_refuses_it_refuses_at_each_call_and_stats_say_why() -> None:
    fast = on_tape(lambda x: x * random.random(), strict=True)
    x = _numbers(3)
    fast(x)
    for _ in range(3):
        with pytest.raises(GraphedError, match="Python's random"):
            fast(x)
    assert len(fast.stats().refusals) == 1


def test_an_error_of_the_function_is_the_callers() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        if x.shape[0] == 3:
            raise ValueError("not three")
        return x.exp()

    fast = on_tape(function)
    for _ in range(5):
        with pytest.raises(ValueError, match="not three"):
            fast(torch.zeros(3))
        fast(torch.zeros(2))
    assert fast.stats().hits == 3


def test_within_another_graphed_function_it_runs_as_it_is() -> None:
    inner = on_tape(lambda x: x.exp())
    outer = on_tape(lambda x: inner(x) + 1)
    for _ in range(5):
        assert outer(torch.zeros(1)).item() == 2.0
    assert (outer.stats().hits, inner.stats().calls) == (3, 0)


def test_a_bound_method_has_the_stats_of_its_function() -> None:
    class Scaler:
        scale = 2.0

        @on_tape
        def scaled(self, x: torch.Tensor) -> torch.Tensor:
            return x.exp() * self.scale

    one = Scaler()
    for _ in range(4):
        assert torch.equal(one.scaled(torch.zeros(2)), torch.full((2,), 2.0))
    assert one.scaled.stats() == Scaler.scaled.stats()
    assert one.scaled.stats().hits == 2


def test_a_graph_that_gains_nothing_is_not_kept_and_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    device = TapeDevice()
    monkeypatch.setattr(device, "seconds", lambda run: (run(), 1.0)[1])
    fast = on_tape(lambda x: x.exp(), device=device, strict=True)
    with pytest.warns(RuntimeWarning, match="a graph gains nothing") as said:  # noqa: PT031
        for _ in range(5):
            assert fast(torch.zeros(1)).item() == 1.0
    assert len(said) == len(fast.stats().refusals) == 1


def test_nan_is_equal_to_nan() -> None:
    fast = on_tape(lambda x: x.log())
    for _ in range(4):
        assert fast(-torch.ones(2)).isnan().all()
    assert fast.stats().hits == 2


def test_without_a_cuda_device_it_says_so() -> None:
    import unstall

    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device")
    fast = unstall.graphed(lambda x: x + 1)
    assert fast(torch.ones(1)).item() == 2.0
    assert fast.stats().text == "1 call, 0 by a graph, 0 captures: no CUDA device: it runs as it is"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        *(({"streams": value}, 'it is "auto" or a number of streams') for value in ("many", 0, 1.5, True, None)),
        *(({"shapes": value}, "or a list of sizes to pad to") for value in ("round", 7, None, [], [0], ["a"], {8: 1})),
        *(({"max_graphs": value}, "at least one is needed") for value in (0, "x", 1.5, True, None)),
    ],
)
def test_options_that_make_no_sense_are_errors(options: dict[str, Any], said: str) -> None:
    import unstall

    with pytest.raises(UsageError, match=said):
        unstall.graphed(lambda x: x, **options)


@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")
def test_tangents_of_forward_mode_are_those_of_eager() -> None:
    def plain(x: torch.Tensor) -> torch.Tensor:
        return (x @ _WEIGHT).tanh()

    fast = on_tape(plain)
    for seed in range(4):
        fast(_numbers(3, 4, seed=seed))
    x = _numbers(3, 4)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, torch.ones_like(x))
        mine, theirs = (forward_ad.unpack_dual(function(dual)).tangent for function in (plain, fast))
    assert theirs is not None
    assert torch.equal(theirs, mine)


@pytest.mark.filterwarnings("ignore:Anomaly Detection has been enabled")
def test_a_search_for_what_gives_a_nan_finds_it_in_a_step_that_has_a_graph() -> None:
    weight = torch.ones(4, requires_grad=True)

    def step(x: torch.Tensor) -> torch.Tensor:
        weight.grad = None
        loss = (x * weight).sqrt().sum()
        loss.backward()
        return loss.detach()

    fast = on_tape(step)
    for seed in range(4):
        fast(_numbers(3, 4, seed=seed).abs())
    assert fast.stats().hits == 2
    with torch.autograd.detect_anomaly(), pytest.raises(RuntimeError, match="SqrtBackward0"):
        fast(-_numbers(3, 4).abs())


def _leaves_the_compiler(x: torch.Tensor) -> torch.Tensor:
    y = x @ _WEIGHT
    torch._dynamo.graph_break()
    return y.relu()


@pytest.mark.parametrize(("function", "in_one"), [(_branches, True), (_leaves_the_compiler, False)])
def test_a_compiler_sees_the_function_itself(function: Callable[..., Any], in_one: bool) -> None:
    """Between the parts of a function that it could not compile in one, too: nothing of graphs' own is compiled."""
    fast = on_tape(function)
    compiled = torch.compile(lambda x: fast(x) + 1, backend="eager", fullgraph=in_one)
    for seed in range(4):
        x = _numbers(3, 4, seed=seed)
        assert torch.equal(compiled(x), function(x) + 1)
    assert fast.stats().calls == 0


def test_a_check_that_fails_for_want_of_memory_refuses_the_graph_and_the_program_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def no_room(*_: object) -> None:
        raise torch.OutOfMemoryError("there is no room for the check")

    monkeypatch.setattr(serving, "check", no_room)
    double = on_tape(lambda x: x * 2, strict=False)
    x = torch.arange(3.0)
    with pytest.warns(RuntimeWarning, match="could not be checked: there is no room for the check"):
        results = [double(x) for _ in range(6)]
    assert all(torch.equal(result, x * 2) for result in results)
