"""Row 19."""

from unstall.course.row import Author, Check, Row
from unstall.course.sources import SEMINAR

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
        Check("A graph of a small model is faster, too.", "a small model, graph", "a small model, eager", at_most=0.6),
        Check(
            "graphed takes less than the small model without a graph.",
            "a small model, graphed",
            "a small model, eager",
            at_most=0.95,
        ),
        Check("graphed gives the small model's bits.", "a small model, graphed, results that are equal", equal=1),
        Check(
            "A graph captured by hand does not see a new tensor.", "by hand, right results for a new tensor", equal=0
        ),
        Check(
            "It sees what is copied into the tensor that it was captured with.",
            "by hand, right results if copied into the captured tensor",
            equal=1,
        ),
        Check("graphed copies the new tensor.", "graphed, right results for a new tensor", equal=1),
        Check(
            "graphed makes no graph of a function that reads a value.",
            "graphed, graphs of a function that reads a value",
            equal=0,
        ),
    ),
    source=SEMINAR,
    learn=(
        "Yes, if launching kernels takes longer than they do, as with a small model of batch 1, 32 layers of 256 "
        "({a small model, eager} to {a small model, graph}): a graph launches all of them by one call.\n"
        "What may go wrong: a graph keeps the addresses, the shapes and the Python branches of its capture, so a "
        "new tensor is not seen and another shape needs another graph. Nothing within may be read on the host, "
        "random numbers have to be the GPU's, and the graph keeps its memory. graphed copies inputs in and "
        "results out, has a graph for each shape, proves that results are the same, and runs what may not be "
        "captured as it is, with a warning that names the line (docs/graphed.md has the list).\n"
        "On real GPUs, all graphs of a process get slower, by up to a fifth, once it has captured several, and "
        "graphed captures a few to choose the best."
    ),
    mine=(
        'If `unstall run train.py` says "Launch-bound", a graph helps; if it says "Device-bound", it does not. '
        "`unstall whatif train.trace.json.gz --edit graph` says what a step would take: for the two thousand tiny "
        "kernels here {graph, predicted}, and with graphed they took {graphed}."
    ),
    change="`fast = unstall.graphed(model)`, and call `fast`; `print(fast.stats())` says what runs as a graph.",
    searched="cudagraph",
    numerics="real",
    finding="launch-bound",
)
