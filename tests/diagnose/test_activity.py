"""What the host and the device were doing, told by names."""

from __future__ import annotations

import numpy as np

from unstall.locate.kinds import is_collective


def test_a_collective_is_told_by_the_library_its_kernel_is_of() -> None:
    names = {
        "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*, unsigned long)": True,
        "void rccl::main_kernel": True,
        "NVSHMEM_barrier": True,
        "mscclKernel_Sum_half_LL": True,
        "gemm": False,
        "prepare_for_nccl": False,
    }
    found = is_collective(tuple(names), np.arange(len(names), dtype=np.int32))
    assert dict(zip(names, found.tolist(), strict=True)) == names
