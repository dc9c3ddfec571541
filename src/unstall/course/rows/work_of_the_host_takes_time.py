"""Row 23."""

from unstall.course.row import Author, Check, Row

ROW = Row(
    number=23,
    topic="Clocks and launches",
    related=(5,),
    question="Does the work of the CPU take time on a virtual GPU's clock?",
    author=Author("one CPU thread", {"mul_sum on the CPU, Timer": "444.65 us", "bmm on the CPU, Timer": "900.82 us"}),
    checks=(
        Check("NumPy takes its time.", "NumPy", "PyTorch on the GPU, until launched", at_least=5),
        Check("So does PyTorch on the CPU.", "PyTorch on the CPU", "PyTorch on the GPU, until launched", at_least=5),
        Check(
            "A single operator on the CPU takes longer than a launch on the GPU (20 launches are timed).",
            "mul_sum on the CPU, Timer",
            "PyTorch on the GPU, until launched",
            at_least=0.05,
        ),
        Check(
            "bmm takes half as long as mul_sum, to six times as long.",
            "bmm on the CPU, Timer",
            "mul_sum on the CPU, Timer",
            0.5,
            6,
        ),
    ),
    learn=(
        "All of it does with `--host mixed`, as here. A virtual GPU models what PyTorch does on the host; work that "
        "the model does not know, such as NumPy's, is then measured on this machine. It is scaled by how long products "
        "and sums take on the modelled host and here, measured in 0.1 s at the start, so other programs make it wrong. "
        "On the CPU a call is done when it returns, so any clock sees it."
    ),
    host="mixed",
)
