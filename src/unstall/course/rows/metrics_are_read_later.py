"""Row 16."""

from unstall.course.row import Check, Row

ROW = Row(
    number=16,
    question='"Save metrics to a list of tensors and reduce later": does that collect them without a barrier?',
    checks=(
        Check("Reading the loss in each step waits 20 times.", "waits, in each step", equal=20),
        Check("Reading all losses at the end waits once.", "waits, at the end", equal=1),
        Check("A MetricBuffer does not wait in the loop.", "waits, some steps later", equal=0),
        Check("The losses are the same.", "loops with the losses of the first", equal=3),
        Check("A loop that waits in each step is slower.", "time, in each step", "time, at the end", at_least=1.02),
    ),
    learn=(
        "Keep tensors and read them together: one wait instead of one a step. A MetricBuffer does the same while the "
        "loop runs, so that numbers come some steps late. Do not add up on the GPU: each addition is a launch."
    ),
    numerics="real",
)
