"""Names and explanations of a GPU's exceptions: the values of CUDBGException_t in NVIDIA's cudadebugger.h."""

from __future__ import annotations

from typing import NamedTuple


class Meaning(NamedTuple):
    """What one kind of GPU exception means.

    Attributes:
        name: NVIDIA's name for the kind of exception.
        words: What the exception means, in words.
        error: The CUresult that CUDA calls return after the exception.
    """

    name: str
    words: str
    error: int = 719


_NO_MEMORY = "a thread read or wrote memory that is not there"
_UNALIGNED = "a thread read or wrote an address that is no multiple of the size"
_STACK = "a thread's stack is full"
_MEANINGS = {
    1: Meaning("Lane Illegal Address", _NO_MEMORY, 700),
    2: Meaning("Lane User Stack Overflow", _STACK),
    3: Meaning("Device Hardware Stack Overflow", _STACK, 714),
    4: Meaning("Warp Illegal Instruction", "an instruction is none of this GPU's", 715),
    5: Meaning("Warp Out-of-range Address", "an address is outside shared or local memory", 700),
    6: Meaning("Warp Misaligned Address", _UNALIGNED, 716),
    7: Meaning("Warp Invalid Address Space", "an instruction was given memory of a kind that it cannot use", 717),
    8: Meaning("Warp Invalid PC", "a jump led out of the code", 718),
    9: Meaning("Warp Hardware Stack Overflow", _STACK, 714),
    10: Meaning("Device Illegal Address", f"{_NO_MEMORY}; the device does not know which", 700),
    11: Meaning("Lane Misaligned Address", _UNALIGNED, 716),
    12: Meaning("Warp Assert", "an assertion failed", 710),
    13: Meaning("Lane Syscall Error", "a call to malloc, free or printf on the device failed"),
    14: Meaning("Warp Illegal Address", _NO_MEMORY, 700),
    15: Meaning("Lane Non-migratable Atomic", "an atomic operation on memory that cannot move to this GPU"),
    16: Meaning("Lane Invalid Atomic", "an atomic operation on managed memory that does not allow it"),
    17: Meaning("Cluster Out-of-range Address", "an address is outside the shared memory of the cluster"),
    18: Meaning("Cluster Block Not Present", "shared memory of a block was used that had ended or not begun"),
    19: Meaning("Warp Stack Canary", "a thread wrote behind the end of an array on its stack"),
    20: Meaning("Warp Tensor Memory Access Check", "tensor memory was used that was not allocated"),
    21: Meaning("Warp Tensor Memory Leak", "a kernel ended without freeing its tensor memory", 721),
    22: Meaning("Warp Call Requires Newer Driver", "a kernel called what this driver does not have"),
}


def meaning(code: int) -> Meaning:
    """Returns what an exception means. `code` is a value of CUDBGException_t in NVIDIA's
    cudadebugger.h.

    If `code` is not known, the result's `name` contains the code.
    """
    return _MEANINGS.get(code, Meaning(f"Exception {code}", "an exception that this version of unstall does not know"))
