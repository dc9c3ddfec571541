"""Row 16."""

from unstall.course.row import Check, Row

ROW = Row(
    number=16,
    topic="Waits",
    related=(15,),
    question='"Save metrics to a list of tensors and reduce later": does that collect them without a barrier?',
    checks=(
        Check("Reading the loss in each step waits 20 times.", "waits, in each step", equal=20),
        Check("Reading all losses at the end waits once.", "waits, at the end", equal=1),
        Check("A MetricBuffer does not wait in the loop.", "waits, some steps later", equal=0),
        Check("The losses are the same.", "loops with the losses of the first", equal=3),
        Check("A loop that waits in each step is slower.", "time, in each step", "time, at the end", at_least=1.02),
    ),
    learn=(
        "Yes: a list of detached tensors is read with one wait at the end. But until then you see no number, cannot "
        "stop at a NaN, and the list keeps memory. A MetricBuffer hands numbers over some steps late, and costs the "
        "host a copy a step. The more the host is ahead of the GPU, the more a wait in each step costs."
    ),
    numerics="real",
)
