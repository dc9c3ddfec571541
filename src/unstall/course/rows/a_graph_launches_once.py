"""Row 19."""

from unstall.course.row import Author, Check, Row

ROW = Row(
    number=19,
    topic="Streams and graphs",
    related=(7, 20),
    question="Would a CUDA graph help, and by how much?",
    author=Author(
        "Tesla T4",
        {"eager": "26.2 ms", "graph": "2.74 ms"},
        within={"eager": 1.25, "graph": 1.25},
        used=("eager",),
    ),
    checks=(
        Check("The graph is faster.", "graph", "eager", at_most=0.4),
        Check("The prediction was right.", "graph, predicted", "graphed", 0.8, 1.25),
        # On four H100s 1.03 to 1.29: before each replay, graphed checks what the graph depends on, and copies.
        Check(
            "graphed takes at most two fifths longer than the graph captured by hand.", "graphed", "graph", at_most=1.4
        ),
        Check("graphed gives the same bits.", "graphed, results that are equal", equal=1),
    ),
    learn=(
        "If kernels are tiny, launching them takes longer than they do. A graph launches all of them by one call. "
        "whatif says what a graph would gain before it is written, and graphed captures it and proves that results "
        "are the same."
    ),
    change=("`fast = unstall.graphed(rounds)`, and call `fast`."),
    numerics="real",
)
