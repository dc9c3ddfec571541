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
            "A single operator on the CPU takes longer than a launch on the GPU, a twentieth of 20 launches.",
            "mul_sum on the CPU, Timer",
            "PyTorch on the GPU, until launched",
            at_least=0.05,
        ),
        Check(
            "bmm takes a like time: half of mul_sum's to six times as much.",
            "bmm on the CPU, Timer",
            "mul_sum on the CPU, Timer",
            0.5,
            6,
        ),
    ),
    learn=(
        "On the CPU a call is done when it returns, and any clock sees it. A virtual GPU models its host; with --host "
        "mixed, work that the model does not know, such as NumPy's, is measured on this machine, and scaled."
    ),
    host="mixed",
)
