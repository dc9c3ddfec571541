"""Pages that several experiments of the course come from."""

from typing import Final

SEMINAR: Final = "https://github.com/mryab/efficient-dl-systems/tree/eb7c257/week01_intro"
"""The first notebook of a course on efficient deep learning. Its times are those of other runs on a Tesla T4."""
SLIDES: Final = "https://d2l.smola.org/slides/pytorch/chapter_computational-performance/async-computation.html"
"""The slides on asynchronous computation of "Dive into Deep Learning"."""
COPYING: Final = "https://discuss.pytorch.org/t/143588"
"""A question on copies that do not block, and on streams."""
