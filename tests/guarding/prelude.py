"""Runs a program, unmodified, on a virtual H200: python prelude.py PROGRAM"""

import runpy
import sys
from pathlib import Path

import unstall

if __name__ == "__main__":
    program = sys.argv[1]
    sys.path[0] = str(Path(program).parent)
    with unstall.virtual_gpu("h200"):
        runpy.run_path(program, run_name="__main__")
