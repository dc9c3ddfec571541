from __future__ import annotations

import sys

import benchmarks.held_out_more
from benchmarks.held_out import compared
from benchmarks.held_out_more.arithmetic import ARITHMETIC
from benchmarks.held_out_more.images import IMAGES
from benchmarks.held_out_more.sequences import SEQUENCES

if __name__ == "__main__":
    sys.exit(compared(benchmarks.held_out_more.__doc__, "benchmarks.held_out_more", IMAGES | SEQUENCES | ARITHMETIC))
