"""Row 8."""

from unstall.course.row import Author, Check, Row
from unstall.course.sources import SEMINAR

_MIB = 2**20

_SEEN = {
    "reserved after 4096x2048": "33,554,432 bytes",
    "used on the device, as nvidia-smi counts": "135 MiB",
    "after 4096x1024": "32.0 MiB",
    "after 4096x3072": "80.0 MiB",
    "active.all.allocated": "4",
    "active.all.peak": "1",
    "reserved_bytes.all.current": "83,886,080 bytes",
}

ROW = Row(
    number=8,
    topic="Memory",
    related=(9, 25),
    question="Why is GPU memory still used when its tensors are gone?",
    author=Author(
        "Tesla T4",
        _SEEN,
        within=dict.fromkeys(_SEEN, 1),
    ),
    checks=(
        Check(
            "The memory of a tensor stays reserved when the tensor is gone.",
            "reserved after 4096x2048",
            equal=32 * _MIB,
        ),
        Check("A smaller tensor is cut out of it.", "after 4096x1024", equal=32 * _MIB),
        Check("A larger tensor needs a segment of its own: 32 + 48 MiB.", "after 4096x3072", equal=80 * _MIB),
        Check(
            "Four tensors were made: active.all.allocated counts all that there ever were.",
            "active.all.allocated",
            equal=4,
        ),
        Check("Only one lived at a time: active.all.peak is the most that did.", "active.all.peak", equal=1),
        Check("empty_cache gives everything back.", "after empty_cache", equal=0),
        Check("With the largest first, one segment is enough.", "largest first", equal=48 * _MIB),
    ),
    source=SEMINAR,
    learn=(
        "The allocator asks CUDA for memory rarely, because that is slow, and keeps what it has: that is no leak. "
        "Reserved memory (memory_reserved) is what it holds, allocated memory (memory_allocated) is what tensors "
        "use now. Only if the allocated memory grows, you keep tensors (25). (In memory_stats, "
        "`active.all.allocated` is another thing: how many blocks were ever in use.) Warm up with the largest "
        "input, and nothing is asked for later.\n"
        "nvidia-smi counts reserved memory and CUDA's own, though no tensor is left: {used on the device, as "
        "nvidia-smi counts} here are 32 MiB of the allocator and the rest of CUDA, which is about 100 MiB on a T4, "
        "and 500 to 620 MiB on an H100 or H200."
    ),
    change=(
        "`unstall.warm_up(forward_and_backward, largest)` before the loop, without the optimizer's step, which would "
        "change the model; or `PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True` (9)."
    ),
)
