import asyncio
import contextlib
import unittest

import pytest
import torch


@pytest.fixture
def x():
    x = torch.ones(1000, device="cuda")
    x.sum().item()  # a wait of a fixture
    return x


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.fixture
async def awaited():
    return 3


@pytest.mark.no_sync
def test_waits(x):
    y = x * 2
    y.sum().item()  # the wait


@pytest.mark.no_sync
def test_does_not_wait(x):
    x * 2 + 1


@pytest.mark.no_sync
def test_grows_the_cache():
    torch.cuda.memory_reserved()
    torch.empty(500 << 20, device="cuda")


@pytest.mark.limit_syncs(0)
def test_grows_the_cache_more_than_once():
    kept = [torch.empty(50 << 20, dtype=torch.uint8, device="cuda") for _ in range(3)]
    del kept


@pytest.mark.no_sync
def test_catches_the_error(x):
    with contextlib.suppress(RuntimeError):
        x.sum().item()


@pytest.mark.limit_syncs(2)
def test_waits_twice(x):
    x.sum().item()
    torch.cuda.synchronize()


@pytest.mark.limit_syncs(2)
def test_waits_three_times(x):
    for _ in range(2):
        x.sum().item()  # often
    bool(x[0] > 1)


@pytest.mark.limit_launches(3)
def test_launches_three(x):
    for _ in range(3):
        x += 1


@pytest.mark.limit_launches(3)
def test_launches_four(x):
    for _ in range(4):
        x += 1


@pytest.mark.limit_device_memory("22 MiB")
def test_takes_little():
    torch.empty(20 << 20, dtype=torch.uint8, device="cuda")


@pytest.mark.limit_device_memory("22 MiB")
def test_takes_much():
    torch.empty(24 << 20, dtype=torch.uint8, device="cuda")


@pytest.mark.limit_idle("99%")
def test_is_busy():
    x = torch.ones(4096, 4096, device="cuda")
    for _ in range(5):
        x = x @ x


@pytest.mark.limit_idle("10%")
def test_is_idle():
    x = torch.ones(3, device="cuda")
    for _ in range(5):
        x = x + 1


@pytest.mark.limit_idle("99%")
def test_has_no_work():
    torch.cuda.synchronize()


@pytest.mark.limit_idle("99%")
@pytest.mark.no_race
def test_does_not_use_torch():
    assert True


def two_streams(waits):
    other = torch.cuda.Stream()
    x = torch.zeros(1 << 20, device="cuda")
    torch.cuda.synchronize()
    x += 1
    if waits:
        other.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(other):
        x * 2  # the race
    torch.cuda.synchronize()


@pytest.mark.no_race
@pytest.mark.parametrize("time", ["first", "again"])
def test_races(time):
    two_streams(waits=False)


@pytest.mark.no_race
def test_is_ordered():
    two_streams(waits=True)


@pytest.mark.limit_syncs(0)
def test_waits_in_a_task(x):
    async def work():
        x.sum().item()

    asyncio.run(work())


@pytest.mark.anyio
@pytest.mark.limit_syncs(0)
async def test_is_async_and_waits(x, awaited):
    x.sum().item()


@pytest.fixture
def runner():
    with asyncio.Runner() as runner:
        runner.run(asyncio.sleep(0))
        yield runner


@pytest.mark.limit_syncs(0)
def test_waits_in_a_runner_of_a_fixture(x, runner):
    async def work():
        x.sum().item()

    runner.run(work())


@pytest.mark.no_sync
class TestAsyncCase(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self):
        self.x = torch.ones(3, device="cuda")

    async def test_waits(self):
        self.x.sum().item()  # a wait of a case

    async def test_does_not_wait(self):
        self.x + 1


@pytest.mark.xfail
@pytest.mark.limit_syncs(0)
def test_is_expected_to_wait(x):
    x.sum().item()


@pytest.mark.limit_syncs(0)
class TestOfClass:
    def test_waits(self, x):
        x.sum().item()

    @pytest.mark.limit_syncs(1)
    def test_may_wait(self, x):
        x.sum().item()


@pytest.mark.limit_syncs("2")
def test_has_a_wrong_marker():
    pass


def test_of_no_gpu():
    assert True
