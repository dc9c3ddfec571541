"""Row 18."""

from unstall.course.row import Author, Check, Row
from unstall.course.sources import SEMINAR

ROW = Row(
    number=18,
    topic="Errors and numbers",
    question="The CPU, the GPU, NumPy and matrix_power give different numbers. Which is right?",
    author=Author(
        "a GPU, 5,000 rows",
        {
            "CPU": "27654770130944",
            "GPU": "27654807879680",
            "NumPy": "27654749159424",
            "matrix_power": "27654760000000",
        },
    ),
    checks=(
        Check("Not all four numbers are equal.", "different numbers", at_least=2),
        Check("They differ by less than 1 in 10,000.", "largest difference", at_most=0.01),
        Check(
            "Rounding explains all four comparisons: GPU, float64, squares and NumPy.", "ways within rounding", equal=4
        ),
    ),
    source=SEMINAR,
    learn=(
        "None of them is wrong: each order of adding up rounds differently, so the last digits differ. The GPU "
        "adds up in another order than the CPU, and matrix_power squares, so its intermediate matrices differ. It "
        "is a bug only if the difference is larger than rounding explains: compare_numbers measures how far "
        "rounding can move a result, so no tolerance (as of allclose) has to be guessed. The author's matrix is "
        "another one, of 5,000 rows: compare how far the four numbers are apart, not the numbers. A virtual GPU "
        "adds up in a GPU's order with `--numerics device`, as here, but not exactly as a real one: so its numbers "
        "need not be those of a real GPU."
    ),
    change=('`print(unstall.compare_numbers(f, x, across=["cuda", "float64"]))` in place of a tolerance.'),
    prints=True,
    searched="precision reproducible deterministic mismatch",
    numerics="device",
)
