"""The operators of torch itself are found on the stack of what waits."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from guarding.fake_driver import COMPILER, compiled, driver_in
from processes import succeeded

pytest.importorskip("unstall.guarding._hooks", reason="the C extension is not built", exc_type=ImportError)
pytestmark = [pytest.mark.slow, pytest.mark.skipif(COMPILER is None, reason="there is no C++ compiler")]

# torch's allocator for the CPU waits for a stream before it gets memory. Searches of all symbols are counted meanwhile.
_MEMORY = """
#include <dlfcn.h>
#include <stddef.h>
typedef long W;
static W (*synchronize)(W);
static int armed, searched;
extern "C" int load(const char *path)
{
    synchronize = (W (*)(W))dlsym(dlopen(path, RTLD_NOW | RTLD_GLOBAL), "cuStreamSynchronize");
    return synchronize != 0;
}
extern "C" void arm(int on) { armed = on; }
extern "C" int searches(void) { return searched; }
extern "C" int posix_memalign(void **memory, size_t alignment, size_t size)
{
    static int (*real)(void **, size_t, size_t);
    if (!real) real = (int (*)(void **, size_t, size_t))dlsym(RTLD_NEXT, "posix_memalign");
    if (armed) synchronize(0);
    return real(memory, alignment, size);
}
extern "C" int dladdr(const void *address, Dl_info *info)
{
    static int (*real)(const void *, Dl_info *);
    if (!real) real = (int (*)(const void *, Dl_info *))dlsym(RTLD_NEXT, "dladdr");
    searched += armed;
    return real(address, info);
}
"""


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("memory")
    memory = compiled(folder, "memory", _MEMORY, "-ldl")
    program = Path(__file__).parent / "programs" / "operators_of_torch.py"
    done = succeeded(
        [sys.executable, str(program), driver_in(folder), memory], env={**os.environ, "LD_PRELOAD": memory}
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_the_outermost_operator_is_that_which_the_program_calls(facts: dict[str, Any]) -> None:
    backward = facts["outermost"].pop("backward")
    assert backward == ["aten::mm", "aten::ones_like"]
    assert facts["outermost"] == {
        "add": ["aten::add_Tensor"],
        "matmul": ["aten::matmul"],
        "linear": ["aten::linear"],
        "softmax": ["aten::softmax_int"],
        "nonzero": ["aten::nonzero"],
        "conv2d": ["aten::conv2d"],
    }


def test_no_search_of_all_symbols_is_made_for_a_wait(facts: dict[str, Any]) -> None:
    """dladdr() makes one, which takes milliseconds in torch's libraries."""
    assert facts["searches"] == 0
