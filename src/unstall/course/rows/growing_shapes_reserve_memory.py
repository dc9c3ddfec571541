"""Row 9."""

from unstall.course.row import Check, Row

_MIB = 2**20

ROW = Row(
    number=9,
    topic="Memory",
    related=(8,),
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
            "With the largest first, nothing more is reserved.",
            "20 steps, the largest first, reserved",
            equal=320 * _MIB,
        ),
    ),
    learn=(
        "A segment that is too small for the next input stays reserved, and a larger one is added. In the worst case, "
        "the reserved memory grows with the square of the steps. One step with the largest shape first avoids it. "
        "Change: `step(largest)` before the loop."
    ),
    then=(("unstall open", "memory over time, by line"),),
    finding="growing-memory",
)
