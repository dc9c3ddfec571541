from __future__ import annotations

import sys

import benchmarks.held_out_more
from benchmarks.held_out import compared
from benchmarks.held_out_more.arithmetic import ARITHMETIC
from benchmarks.held_out_more.images import IMAGES
from benchmarks.held_out_more.inference import INFERENCE
from benchmarks.held_out_more.language import LANGUAGE
from benchmarks.held_out_more.learning import LEARNING
from benchmarks.held_out_more.sequences import SEQUENCES
from benchmarks.held_out_more.vision import VISION

_PROGRAMS = IMAGES | SEQUENCES | ARITHMETIC | VISION | INFERENCE | LANGUAGE | LEARNING
# tokens by expert; rounds until it converges; boxes that overlap; beams that end; means checked to be numbers
_BY_VALUES = ("experts", "clusters", "bends", "detects", "beams", "soft")

if __name__ == "__main__":
    sys.exit(compared(benchmarks.held_out_more.__doc__, "benchmarks.held_out_more", _PROGRAMS, _BY_VALUES))
