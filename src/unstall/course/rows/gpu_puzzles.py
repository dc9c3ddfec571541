"""Row 24."""

from unstall.course.row import Check, Row

ROW = Row(
    number=24,
    topic="Inside PyTorch and a kernel",
    question="How do the threads of a kernel share memory, and what if one does not wait for the others?",
    checks=(
        Check("All fourteen kernels are inspected.", "puzzles", equal=14),
        Check("They give NumPy's values.", "right values", equal=14),
        Check("None of them races.", "races", equal=0),
        Check("Without its barrier, a kernel races.", "races without the barrier", equal=1),
        Check(
            "With shared memory, pooling reads global memory less than three times.",
            "pooling, global reads of a thread",
            at_most=2,
        ),
        Check(
            "A product of matrices reads shared memory more often than global memory.",
            "matrix_multiply, shared reads of a thread",
            "matrix_multiply, global reads of a thread",
            equal=4,
        ),
    ),
    source="https://github.com/srush/GPU-Puzzles",
    learn=(
        "A block loads each element from global memory once or twice, and its threads share it. If a thread reads "
        "what another thread wrote, a barrier must be in between, even if the values come out right without one: the "
        "order of threads is not fixed. By the model, such small kernels take as long as an empty one."
    ),
    needs="numba",
    on_gpu=False,
)
