"""Row 10."""

from unstall.course.row import Check, Row
from unstall.course.sources import SEMINAR

ROW = Row(
    number=10,
    topic="Streams and graphs",
    related=(12,),
    question="May work on another stream start before its input is ready?",
    checks=(
        Check(
            "Without a wait, sum may begin before normal_ has ended.",
            "without a wait, sum began after",
            "without a wait, normal_ ended after",
            at_most=0.95,
        ),
        Check(
            "With wait_stream, sum begins after normal_ has ended.",
            "with wait_stream, sum began after",
            "with wait_stream, normal_ ended after",
            at_least=1,
        ),
        Check("unstall finds the race.", "without a wait, races", equal=1),
        Check("Its first line is that of normal_.", "lines from normal_ to the first line that unstall names", equal=0),
        Check("Its second line is that of sum.", "lines from sum to the second line that unstall names", equal=0),
        Check("With wait_stream, there is no race.", "with wait_stream, races", equal=0),
    ),
    source=SEMINAR,
    learn=(
        "Streams do not wait for each other unless they are told to. Call wait_stream on a stream before it "
        "reads what another one writes, and on that one before it uses the result. A right result does not prove "
        "that there is no race."
    ),
    change=(
        "`side.wait_stream(main)` before the side stream reads, and `main.wait_stream(side)` before its result is used."
    ),
    finding="race",
)
