"""Calls of backward() and of a DataLoader as spans, on a CPU: with a libcupti that takes all calls and does nothing."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("unstall.cupti._cupti", reason="its C extension is not built", exc_type=ImportError)

_FUNCTIONS = (
    *("GetResultString", "Unsubscribe", "EnableCallback", "ActivitySetAttribute", "ActivityRegisterTimestampCallback"),
    *("ActivityRegisterCallbacks", "ActivityEnable", "ActivityDisable", "ActivityGetNextRecord"),
    *("ActivityGetNumDroppedRecords", "ActivityFlushAll", "GetStreamIdEx", "Finalize"),
)
_LIBCUPTI = (
    "int cuptiGetVersion(unsigned *version) { *version = 130000; return 0; }\n"
    "int cuptiSubscribe(void **subscriber) { *subscriber = subscriber; return 0; }\n"
) + "".join(f"int cupti{name}() {{ return 0; }}\n" for name in _FUNCTIONS)

_HEAD = """\
import json, os, sys
from unstall.cupti import _cupti
from unstall.guest import device
device.has_driver = lambda: True
_cupti.load(sys.argv[1])  # the first that is loaded stays: torch may bring another
import torch
import unstall
from torch.utils.data import dataloader

def patched():
    return [torch.autograd._engine_run_backward is engine, dataloader._BaseDataLoaderIter.__next__ is following]

def spans(recording):
    from pathlib import Path
    from unstall.cupti.decode import read_activity
    from unstall.lines.places import read_places
    folder = Path(recording._settings.folder)
    places, found = read_places(folder, os.getcwd()), read_activity(folder).spans
    mine = [[f"{function}:{line}" for file, line, function in places.stacks[span["stack"]] if file == "program.py"]
            for span in found]
    wrappers = [file for stack in places.stacks.values() for file, _, _ in stack if "wrapping" in file]
    return [[places.spans[span["what"]], *lines] for span, lines in zip(found, mine)], wrappers

engine, following = torch.autograd._engine_run_backward, dataloader._BaseDataLoaderIter.__next__
weight = torch.ones(4, requires_grad=True)
"""


@pytest.fixture(scope="module")
def libcupti(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip("no gcc to build a libcupti with")
    library = tmp_path_factory.mktemp("lib") / "libcupti.so.13"
    command = [compiler, "-x", "c", "-shared", "-fPIC", "-o", str(library), "-"]
    subprocess.run(command, input=_LIBCUPTI, text=True, check=True, capture_output=True)
    return library


def _ran(libcupti: Path, folder: Path, text: str) -> list[Any]:
    """What a program prints, JSON by line."""
    (folder / "program.py").write_text(_HEAD + text)
    told = subprocess.run([sys.executable, "program.py", str(libcupti)], cwd=folder, capture_output=True, text=True)
    assert told.returncode == 0, told.stderr
    return [json.loads(line) for line in told.stdout.splitlines()]


_FIRST = _HEAD.count("\n") + 1

_RECORDED = """\
def train():
    for batch in torch.utils.data.DataLoader(torch.ones(2, 4)):
        (weight * batch).sum().backward()
    torch.autograd.grad((weight * 2).sum(), weight)

with unstall.record(recorder="cupti", lines="calls") as run:
    print(json.dumps(patched()), flush=True)
    child = os.fork()
    if child == 0:
        print(json.dumps(patched()), flush=True)
        os._exit(0)
    os.waitpid(child, 0)
    train()
print(json.dumps(patched()))
found, wrappers = spans(run)
print(json.dumps([found, wrappers]))
train()
"""
_CALLED = _FIRST + _RECORDED[: _RECORDED.index("    train()")].count("\n")


@pytest.mark.slow
def test_backward_and_batches_are_spans_at_their_lines_and_torch_is_as_it_was(libcupti: Path, tmp_path: Path) -> None:
    during, forked, after, (found, wrappers) = _ran(libcupti, tmp_path, _RECORDED)
    assert sorted(found) == sorted(
        [["backward", f"train:{_FIRST + 2}", f"<module>:{_CALLED}"]] * 2
        + [["backward", f"train:{_FIRST + 3}", f"<module>:{_CALLED}"]]
        + [["enumerate(DataLoader)#__next__", f"train:{_FIRST + 1}", f"<module>:{_CALLED}"]] * 3
    )
    assert during == [sys.version_info >= (3, 12), False]  # marks see a loader's batches in every version
    assert (forked, after) == ([True, True], [True, True])
    if sys.version_info < (3, 12):
        assert wrappers == []


_COMPILED = """\
import warnings

def step(batch):
    loss = (weight * batch).sum()
    loss.backward()
    return loss * 2

def compiled():
    graphs = []
    torch._dynamo.reset()
    torch.compile(step, backend=lambda graph, _: graphs.append(graph) or graph.forward)(torch.ones(4))
    return len(graphs)

plain = compiled()
warnings.filterwarnings("error", message="Dynamo does not know")
with unstall.record(recorder="cupti", lines="calls") as run:
    print(json.dumps([plain, compiled()]))
print(json.dumps([name for name, *_ in spans(run)[0]]))
"""


@pytest.mark.slow
def test_what_torch_compiles_is_the_same_while_calls_are_watched(libcupti: Path, tmp_path: Path) -> None:
    (plain, recorded), found = _ran(libcupti, tmp_path, _COMPILED)
    assert plain == recorded > 0
    assert found == ["backward"]
