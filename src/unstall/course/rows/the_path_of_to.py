"""Row 21."""

from unstall.course.row import Check, Row
from unstall.course.sources import COPYING

ROW = Row(
    number=21,
    topic="Inside PyTorch and a kernel",
    related=(13,),
    question='What happens inside x.to("cuda")?',
    checks=(
        Check("Four operators and two calls of CUDA were recorded.", "links", equal=6),
        Check("They lead to one copy on the GPU.", "copies on the GPU", equal=1),
        Check("torch waits for the stream once.", "waits for the stream", equal=1),
        Check("With non_blocking, torch does not wait.", "waits for the stream, pinned and non_blocking", equal=0),
        Check("So one link is gone, and all others stay.", "links, pinned and non_blocking", equal=5),
    ),
    source=COPYING,
    learn=(
        "to() makes a tensor on the GPU and copies into it. The dispatcher always picks Copy.cpp for copy_ of dense "
        "tensors, and Copy.cpp picks Copy.cu by the tensors' devices (copy_stub). With non_blocking, Copy.cu calls "
        "cudaMemcpyAsync on the current stream. Without it, Copy.cu calls memcpy_and_sync, which copies by "
        "cudaMemcpyAsync and then waits for that stream."
    ),
    numerics="real",
    then=(("unstall show the_path_of_to.py:43 --chain", "the call, link by link"),),
)
