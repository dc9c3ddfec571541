"""The Python processes that a blamed program starts: their folders and rings."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="programs are launched on Linux alone")

from unstall.blaming import supervise as supervising  # noqa: E402
from unstall.blaming.child import RING  # noqa: E402
from unstall.blaming.hangs import arming  # noqa: E402
from unstall.blaming.hangs.room import RING_BYTES, place_for_ring, remove_ring, spare_room  # noqa: E402
from unstall.blaming.hangs.watch import Wanted, Watcher  # noqa: E402
from unstall.blaming.ring import pulse  # noqa: E402
from unstall.launching.launch import Exit  # noqa: E402

TORCH = """__version__ = "2.fake"
class cuda:
    queued = []
    @classmethod
    def _lazy_call(cls, act):
        cls.queued.append(act)
"""
INITIALISES = """import torch
for act in torch.cuda.queued:
    act()
"""
IN_A_FORK = """import torch
if not os.fork():
    for act in torch.cuda.queued:
        act()
    os._exit(0)
os.wait()
"""
AS_A_CHILD = "import os\nfrom unstall.blaming.hangs.arming import arm\narm(None)\n"
AS_THE_PROGRAM = """import os
from pathlib import Path
from unstall.blaming.child import start
folder = Path(os.environ["UNSTALL_BLAME_FOLDER"], str(os.getpid()))
folder.mkdir()
start(folder)
"""
AGAIN = """import sys
from pathlib import Path
from unstall.blaming.hangs.answers import ask
folder = Path(os.environ["UNSTALL_BLAME_FOLDER"], str(os.getpid()))
if sys.argv[1] == "first":
    (folder / "blame.bin").write_text("of the first program")
    os.execv(sys.executable, [sys.executable, __file__, "again"])
print(ask([folder])[0] is not None, (folder / "blame.bin").exists())
"""


def ran(tmp_path: Path, program: str, *arguments: str) -> tuple[str, list[str]]:
    """What a program prints, and which files it leaves in its folder."""
    folder = tmp_path / "folder"
    folder.mkdir()
    (tmp_path / "torch.py").write_text(TORCH)
    (tmp_path / "program.py").write_text(program)
    done = subprocess.run(
        [sys.executable, str(tmp_path / "program.py"), *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, arming.FOLDER: str(folder)},
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (own,) = folder.iterdir()
    return done.stdout.strip(), sorted(path.name for path in own.iterdir())


def test_a_child_notes_work_once_it_initialises_cuda(tmp_path: Path) -> None:
    _, files = ran(tmp_path, AS_A_CHILD + INITIALISES)
    assert {"blame.bin", "blame.json"} <= set(files)


def test_a_fork_of_a_child_leaves_the_folder_of_its_parent_as_it_is(tmp_path: Path) -> None:
    _, files = ran(tmp_path, AS_A_CHILD + IN_A_FORK)
    assert not {"blame.bin", "blame.json"} & set(files)


def test_a_fork_of_the_program_does_not_say_how_its_parent_follows_the_driver(tmp_path: Path) -> None:
    _, files = ran(tmp_path, AS_THE_PROGRAM + IN_A_FORK)
    assert files == ["blame.bin"]


def test_a_process_that_runs_another_program_in_its_place_can_be_asked_again(tmp_path: Path) -> None:
    assert ran(tmp_path, AS_A_CHILD + AGAIN, "first")[0] == "True False"


def armed_children(folder: Path, monkeypatch: pytest.MonkeyPatch, wanted: Wanted) -> bool:
    """Whether the Python processes of a program are armed."""
    found = []

    def launch(*_args: object, **_kwargs: object) -> Exit:
        found.append(arming.FOLDER in os.environ)
        return Exit(0)

    monkeypatch.setattr(supervising, "launch", launch)
    supervising.supervise(["x"], folder, watcher=Watcher(folder, wanted, print, print))
    return found[0]


@pytest.mark.parametrize("never", [False, True])
def test_children_are_armed_unless_hangs_are_never_to_be_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, never: bool
) -> None:
    assert armed_children(tmp_path, monkeypatch, Wanted(math.inf if never else None)) is not never


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """The folder of a process."""
    folder = tmp_path / "folder" / "17"
    folder.mkdir(parents=True)
    return folder


def free(monkeypatch: pytest.MonkeyPatch, rings: float) -> None:
    """Makes shared memory have room for so many rings."""
    room = SimpleNamespace(f_bavail=int(rings * RING_BYTES), f_frsize=1)
    monkeypatch.setattr(os, "statvfs", lambda _path: room)


def test_a_ring_is_in_shared_memory_if_ten_of_them_fit(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    free(monkeypatch, 10)
    with spare_room(own.parent):
        assert place_for_ring(own) == own / RING


def test_else_a_ring_is_in_the_temporary_folder_and_read_from_its_place(
    own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free(monkeypatch, 9.9)
    with spare_room(own.parent):
        place = place_for_ring(own)
        place.write_text("ring")
        assert (own / RING).read_text() == "ring"
        assert place.resolve().parent.parent == Path(tempfile.gettempdir()).resolve()


def test_a_ring_of_the_temporary_folder_is_removed_with_its_process_or_the_run(
    own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free(monkeypatch, 0)
    with spare_room(own.parent):
        place = place_for_ring(own).resolve()
        place.write_text("ring")
        remove_ring(own)
        assert (place.exists(), (own / RING).is_symlink()) == (False, False)
        place = place_for_ring(own).resolve()
        place.write_text("ring")
    assert not place.parent.exists()


def test_a_ring_is_no_larger_than_what_room_is_looked_for(tmp_path: Path) -> None:
    program = "import sys\nfrom unstall.blaming import _blame\n_blame.open(sys.argv[1], '', ())\n"
    subprocess.run([sys.executable, "-c", program, tmp_path / RING], check=True)
    assert RING_BYTES * 0.9 < (tmp_path / RING).stat().st_size <= RING_BYTES


def test_what_is_no_ring_has_no_pulse(tmp_path: Path) -> None:
    (tmp_path / RING).write_bytes(bytes(1 << 17))
    with pytest.raises(ValueError, match="is no ring"):
        pulse(tmp_path / RING)
