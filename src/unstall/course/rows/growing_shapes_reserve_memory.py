"""Row 9."""

from unstall.course.row import Check, Row
from unstall.course.sources import SEMINAR

_MIB = 2**20

ROW = Row(
    number=9,
    topic="Memory",
    related=(8, 25),
    question="How much memory do inputs of growing shape cost without a warm-up?",
    checks=(
        Check(
            "Twice the steps need nearly four times the memory: it grows with their square.",
            "20 growing steps, reserved",
            "10 growing steps, reserved",
            3,
            4.2,
        ),
        Check(
            "20 growing steps reserve 10.5 times what the largest input needs.",
            "20 growing steps, reserved",
            "largest input",
            equal=10.5,
        ),
        Check(
            "In random order, the same steps reserve less than half of that.",
            "20 steps in random order, reserved",
            "20 growing steps, reserved",
            at_most=0.5,
        ),
        Check(
            "Padded to four lengths, they reserve one segment for each: 80 + 160 + 240 + 320 MiB.",
            "20 growing steps, padded to 4 lengths, reserved",
            equal=800 * _MIB,
        ),
        Check(
            "With the largest first, nothing more is reserved.",
            "20 steps, the largest first, reserved",
            equal=320 * _MIB,
        ),
        Check(
            "Segments that can grow need no more than the largest input either.",
            "20 growing steps, expandable segments, reserved",
            equal=320 * _MIB,
        ),
    ),
    source=SEMINAR,
    learn=(
        "A segment that is too small for the next input stays reserved, and a larger one is added. In the worst "
        "case, the reserved memory grows with the square of the steps ({20 growing steps, reserved} here); in random "
        "order it takes less ({20 steps in random order, reserved}). "
        "One step with the largest shape first avoids it; it must not change the model, so no optimizer.step() in it. "
        "Segments that can grow avoid it, too, if the variable is set before the program starts. Padding inputs to a "
        "few lengths helps less."
    ),
    change=(
        "`unstall.warm_up(forward_and_backward, largest)` before the loop, or "
        "`PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True python train.py`."
    ),
    then=(("unstall open", "memory over time, by line"),),
    finding="growing-memory",
)
