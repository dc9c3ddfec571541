"""Row 2."""

from unstall.course.row import Author, Check, Row
from unstall.course.sources import SEMINAR

ROW = Row(
    number=2,
    topic="Clocks and launches",
    related=(1, 7),
    question="Why does the first call take so much longer than the second, and what is a warm-up for?",
    author=Author(
        "Tesla T4",
        {
            "mul_sum, first 100 calls, mean": "773.5 us",
            "mul_sum, second 100 calls, mean": "28.4 us",
            "bmm, first 100 calls, mean": "1565.1 us",
            "bmm, second 100 calls, mean": "27.9 us",
        },
        within={
            "mul_sum, first 100 calls, mean": 2,
            "mul_sum, second 100 calls, mean": 1.25,
            "bmm, first 100 calls, mean": 2,
            "bmm, second 100 calls, mean": 1.25,
        },
        used=("mul_sum, second 100 calls, mean",),
    ),
    checks=(
        Check(
            "The first calls of an operator take longer: they load its kernels.",
            "mul_sum, first 100 calls, mean",
            "mul_sum, second 100 calls, mean",
            at_least=2,
        ),
        Check(
            "The first product takes longer still: it loads cuBLAS.",
            "bmm, first 100 calls, mean",
            "mul_sum, first 100 calls, mean",
            at_least=1.2,
        ),
        Check(
            "The first call itself takes as long as hundreds of later calls.",
            "mul_sum, first call",
            "mul_sum, second 100 calls, mean",
            at_least=100,
        ),
        Check(
            "The first step of a training sets up more than its forward pass needs.",
            "training step 1, 32 images",
            "training step 5, 32 images",
            at_least=10,
        ),
        Check(
            "The second step still sets things up.",
            "training step 2, 32 images",
            "training step 5, 32 images",
            at_least=1.1,
        ),
        Check(
            "A new shape sets things up again.",
            "training step 6, 48 images",
            "training step 7, 48 images",
            at_least=1.5,
        ),
        Check(
            "The first tensor starts CUDA, which takes as long as thousands of calls.",
            "first tensor on the GPU",
            "bmm, second 100 calls, mean",
            at_least=1000,
        ),
    ),
    source=SEMINAR,
    learn=(
        "The first use of CUDA, of a library and of a kernel sets things up, once, and these times add up in a "
        "first iteration: here to more than half a second. A training does so for some steps, and again for each "
        "new shape; cuDNN may try algorithms then (cudnn.benchmark), and torch.compile compiles. So one call is no "
        "warm-up: run the whole step a few times, with each shape, before you time it. Do not average first calls "
        "with the others. The {mul_sum, second 100 calls, mean} of a later call are its launch, without the work "
        "(1): wait for the GPU before each reading of the clock. unstall run counts first uses as start-up, apart "
        "from everything else."
    ),
    change=(
        "`for _ in range(5): step()` before the clock is read for the first time, and `torch.cuda.synchronize()` "
        "before each reading. These steps train the model, as any others do: if they must not, run them with a copy of "
        "it and of its optimizer."
    ),
    missed={
        "bmm, first 100 calls, mean": "the author's cuBLAS is not known: on the H100, a newer one loads within 64 ms.",
    },
    differs={"training step 6, 48 images": ""},
    finding="first-use:42",
)
