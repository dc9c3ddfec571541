from __future__ import annotations

import sys

import benchmarks.held_out_more
from benchmarks.held_out import compared
from benchmarks.held_out_more.arithmetic import ARITHMETIC
from benchmarks.held_out_more.images import IMAGES
from benchmarks.held_out_more.sequences import SEQUENCES

_PROGRAMS = IMAGES | SEQUENCES | ARITHMETIC
_BY_VALUES = ("experts", "clusters", "bends")  # tokens by expert; rounds until it converges

if __name__ == "__main__":
    sys.exit(compared(benchmarks.held_out_more.__doc__, "benchmarks.held_out_more", _PROGRAMS, _BY_VALUES))
