"""Row 20."""

from unstall.course.row import Check, Row

ROW = Row(
    number=20,
    topic="Streams and graphs",
    related=(11, 19),
    question="Which operators may run at the same time?",
    checks=(
        Check("A chain stays on one stream.", "chain, streams of the best graph", equal=1),
        Check("Independent branches get several streams.", "branches, streams of the best graph", at_least=2),
        Check("Several streams are faster.", "branches, best graph", "branches, graph of one stream", at_most=0.85),
        Check("Results of the chain are the same bits.", "chain, results that are equal", equal=1),
        Check("Results of the branches are the same bits.", "branches, results that are equal", equal=1),
    ),
    learn=(
        "Operators depend on each other through the tensors that they read and write. One stream keeps the order of "
        "calls, even if nothing depends on it. Several streams help if operators are independent and too small to fill "
        "the GPU."
    ),
    change=("`fast = unstall.graphed(branches)`: it finds the streams."),
    numerics="real",
    then=(("unstall draw --step 2 -o graph.html", "branches() as a graph"),),
)
