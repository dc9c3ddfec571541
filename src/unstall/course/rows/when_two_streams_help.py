"""Row 11."""

from unstall.course.row import Author, Check, Row
from unstall.course.sources import SEMINAR

ROW = Row(
    number=11,
    topic="Streams and graphs",
    related=(20,),
    question="When do two streams help?",
    author=Author(
        "Tesla T4",
        {"two products, one stream": "1.081 ms", "two products, two streams": "1.042 ms"},
        within={"two products, one stream": 1.25, "two products, two streams": 1.25},
    ),
    checks=(
        Check(
            "Products of 1,000 x 1,000 gain little from a second stream.",
            "two products, two streams",
            "two products, one stream",
            0.85,
            1.15,
        ),
        Check(
            "Large products fill the GPU, so a second stream gains nothing.",
            "two large products, two streams",
            "two large products, one stream",
            0.85,
            1.15,
        ),
        Check(
            "Two blocks of threads leave most of the GPU idle, so two streams run side by side.",
            "two softmax of 2 rows, two streams",
            "two softmax of 2 rows, one stream",
            at_most=0.8,
        ),
        Check(
            "Launching tiny kernels takes as long on two streams.",
            "two hundred tiny kernels, two streams",
            "two hundred tiny kernels, one stream",
            0.85,
            1.2,
        ),
    ),
    source=SEMINAR,
    learn=(
        "If each kernel leaves most of the GPU idle, so that two run in parallel ({two softmax of 2 rows, two streams} "
        "in place of {two softmax of 2 rows, one stream}), or if one copies while the other computes (12). A GPU has "
        "40 (T4) to 132 (H100) multiprocessors, each of which works on some blocks of threads at a time, and a second "
        "stream adds no multiprocessors. Kernels that fill all of them take turns, and a product (matmul) of 1,000 x "
        "1,000 nearly does. If kernels are tiny, launching them is the limit, and streams do not help either: a graph "
        "does."
    ),
    mine=(
        'If `unstall run` says "Launch-bound", tiny kernels are the limit. Otherwise try two streams, and run it '
        'again: it names kernels which leave no room for others under "Good to know" ("A kernel fills the '
        'device"). It also names copies that could run beside computing, with the gain.'
    ),
    change=(
        "`fast = unstall.graphed(f)`, which puts small independent kernels on several streams (20); one stream "
        "for kernels that fill the GPU, and a second one for copies."
    ),
    searched="gemm concurrent concurrency",
    finding="full-device",
)
