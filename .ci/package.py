"""Checks what would be published: the sdist holds every source, and the wheel made of it works on its own.

Usage: python .ci/package.py FOLDER, in an environment that has `build`.

FOLDER gets both. The wheel is made from the sdist, has every C extension, and explains the demo's recorded runs in an
environment in which there is nothing else.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tempfile
import tomllib
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]


def run(*command: str | Path, cwd: Path = ROOT) -> str:
    return subprocess.run(command, cwd=cwd, check=True, text=True, stdout=subprocess.PIPE).stdout


def missing_in(sdist: Path) -> set[str]:
    """Files under src/ that git tracks and the sdist lacks."""
    with tarfile.open(sdist) as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()}
    return {*run("git", "ls-files", "src").split(), "LICENSE", "README.md"} - packed


def extensions_not_in(wheel: Path) -> set[str]:
    """C extensions that were not built: all are optional, so that the build itself goes on without them."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["ext-modules"]
    built = {name.partition(".")[0].replace("/", ".") for name in zipfile.ZipFile(wheel).namelist() if ".abi3." in name}
    return {extension["name"] for extension in declared} - built


def told_by(wheel: Path) -> str:
    """What `unstall demo` says, by this wheel alone. Without torch, that is about recorded runs."""
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        programs = Path(folder) / "bin"
        run(programs / "python", "-m", "pip", "install", "--quiet", wheel)
        return run(programs / "unstall", "demo", cwd=Path(folder))


def main(folder: Path) -> None:
    run(sys.executable, "-m", "build", "--outdir", folder)
    (sdist,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
    if lacking := missing_in(sdist):
        raise SystemExit(f"{sdist.name} lacks {', '.join(sorted(lacking))}")
    if lacking := extensions_not_in(wheel):
        raise SystemExit(f"{wheel.name} was built without {', '.join(sorted(lacking))}")
    told = told_by(wheel)
    if "pip install torch" not in told or "promised" not in told:
        raise SystemExit(f"the demo of {wheel.name} says\n{told}")
    print(f"{sdist.name} is whole, and the demo of {wheel.name} works")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
