"""Functions of CUDA's driver, by what their arguments are (cuda.h), and a program that calls each of them."""

from __future__ import annotations

from collections.abc import Iterator

_WORK = {  # a letter for each: Function, Stream, Config, Event or address, Value, Count, Operations; - for another
    "cuLaunchKernel": "F-------S--",
    "cuLaunchKernelEx": "CF--",
    "cuLaunchCooperativeKernel": "F-------S-",
    "cuGraphLaunch": "-S",
    "cuMemcpyHtoDAsync_v2": "---S",
    "cuMemcpyDtoHAsync_v2": "---S",
    "cuMemcpyDtoDAsync_v2": "---S",
    "cuMemcpyAsync": "---S",
    "cuMemcpy2DAsync_v2": "-S",
    "cuMemcpy3DAsync_v2": "-S",
    "cuMemcpyPeerAsync": "-----S",
    "cuMemcpy3DPeerAsync": "-S",
    "cuMemcpyBatchAsync": "--------S",
    "cuMemcpyBatchAsync_v2": "-------S",
    "cuMemcpyWithAttributesAsync": "----S",
    "cuMemcpyHtoD_v2": "---",
    "cuMemcpyDtoH_v2": "---",
    "cuMemcpyDtoD_v2": "---",
    "cuMemcpy": "---",
    "cuMemcpy2D_v2": "-",
    "cuMemcpy2DUnaligned_v2": "-",
    "cuMemcpy3D_v2": "-",
    "cuMemsetD8Async": "---S",
    "cuMemsetD16Async": "---S",
    "cuMemsetD32Async": "---S",
    "cuMemsetD2D8Async": "-----S",
    "cuMemsetD2D16Async": "-----S",
    "cuMemsetD2D32Async": "-----S",
    "cuMemsetD8_v2": "---",
    "cuMemsetD16_v2": "---",
    "cuMemsetD32_v2": "---",
    "cuEventRecord": "ES",
    "cuEventRecordWithFlags": "ES-",
    "cuStreamWaitEvent": "SE-",
    "cuStreamWaitValue32": "SEV-",
    "cuStreamWaitValue32_v2": "SEV-",
    "cuStreamWaitValue64": "SEV-",
    "cuStreamWaitValue64_v2": "SEV-",
    "cuStreamWriteValue32": "SEV-",
    "cuStreamWriteValue32_v2": "SEV-",
    "cuStreamWriteValue64": "SEV-",
    "cuStreamWriteValue64_v2": "SEV-",
    "cuStreamBatchMemOp": "SNO-",
    "cuStreamBatchMemOp_v2": "SNO-",
}
_OTHERS = {
    "cuStreamQuery": "S",
    "cuStreamSynchronize": "S",
    "cuCtxSynchronize": "",
    "cuCtxSynchronize_v2": "-",
    "cuEventQuery": "E",
    "cuEventSynchronize": "E",
    "cuStreamBeginCapture": "S",
    "cuStreamBeginCapture_v2": "S-",
    "cuStreamBeginCaptureToGraph": "S-----",
    "cuStreamEndCapture": "S-",
    "cuStreamDestroy": "S",
    "cuStreamDestroy_v2": "S",
    "cuCtxDestroy": "S",
    "cuCtxDestroy_v2": "S",
    "cuModuleUnload": "-",
    "cuLibraryUnload": "-",
    "cuDevicePrimaryCtxRelease": "S",
    "cuDevicePrimaryCtxRelease_v2": "S",
    "cuDevicePrimaryCtxReset": "S",
    "cuDevicePrimaryCtxReset_v2": "S",
    "cuMemAlloc_v2": "--",
    "cuMemFree_v2": "-",
    "cuMemHostAlloc": "---",
}
ARGUMENTS = _WORK | _OTHERS


CALL = f"""
import ctypes, struct
driver, runtime = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL("libruntime.so")
driver.fake_function.restype = ctypes.c_void_p
runtime.runtime_load()
ARGUMENTS = {ARGUMENTS!r}
kept = []

def memory(content):
    kept.append(ctypes.create_string_buffer(content, len(content)))
    return ctypes.addressof(kept[-1])

def call(name, stream=7, kernel=b"kernel", event=0, value=0, operations=(), result=0, made_by=runtime.runtime_call):
    operations = operations or ((4, event, value), (6, 0, 0), (2, event + 8, value))
    values = {{
        "F": lambda: driver.fake_function(kernel), "S": lambda: stream, "E": lambda: event, "V": lambda: value,
        "C": lambda: memory(struct.pack("<32xQ24x", stream)), "N": lambda: len(operations), "-": lambda: 0,
        "O": lambda: memory(b"".join(struct.pack("<QQQ24x", *operation) for operation in operations)),
    }}
    letters = ARGUMENTS[name.removesuffix("_ptsz").removesuffix("_ptds")]
    words = (ctypes.c_int64 * 12)(*(values[letter]() for letter in letters))
    return made_by(name.encode(), words, result)
"""
"""`call` makes a call of the driver as the CUDA runtime would, by a pointer in its data."""


def each_function() -> Iterator[str]:
    """Lines of a program that calls each function that puts work on a stream: on streams, and on the default ones."""
    for number, (name, arguments) in enumerate(_WORK.items()):
        said = f"kernel=b'kernel_{number}', event={64 + number}, value={number}"
        has_stream = "S" in arguments or "C" in arguments
        for stream in (7, 8, 0, 1) if has_stream else (0,):
            yield f"call({name!r}, stream={stream}, {said})"
        for stream in (7, 0, 2) if has_stream else (0,):
            yield f"call({name + ('_ptsz' if has_stream else '_ptds')!r}, stream={stream}, {said})"


STORY = """
call("cuLaunchKernel", kernel=b"one")
call("cuLaunchKernel", kernel=b"two")
call("cuEventRecord", event=500)
call("cuStreamWaitEvent", stream=8, event=500)
call("cuLaunchKernel", stream=8, kernel=b"three")
call("cuEventQuery", event=500, result=600)
call("cuEventQuery", event=500)
call("cuEventSynchronize", event=500)
call("cuStreamQuery", stream=8, result=600)
call("cuStreamQuery", stream=8)
call("cuStreamSynchronize", stream=1)
call("cuStreamSynchronize_ptsz", stream=0)
call("cuLaunchKernel", stream=8, kernel=b"three")
call("cuStreamBeginCapture", stream=9)
call("cuLaunchKernel", stream=9, kernel=b"in graph")
call("cuMemcpyAsync", stream=9)
call("cuLaunchKernel", stream=9, kernel=b"in graph")
call("cuStreamEndCapture", stream=9)
call("cuGraphLaunch", stream=7)
call("cuGraphLaunch", stream=7)
call("cuStreamBeginCapture", stream=9, result=900)
call("cuStreamBeginCaptureToGraph", stream=9)
call("cuLaunchKernel", stream=9, kernel=b"in graph")
call("cuStreamEndCapture", stream=9, result=901)
call("cuModuleUnload")
call("cuLaunchKernel", kernel=b"one")
call("cuMemAlloc_v2", result=2)
call("cuStreamDestroy_v2", stream=8)
call("cuCtxSynchronize")
call("cuLaunchKernel", kernel=b"four")
call("cuMemFree_v2", result=700)
call("cuLaunchKernel", kernel=b"after the error")
call("cuStreamSynchronize", result=700)
call("cuStreamDestroy_v2", stream=9)
"""
"""A program with events, captures, waits, and an error."""

TABLES = """
def tables():
    found = read_ring(ring)
    streams, header = found.tables["streams"], found.header
    def of(each):
        on = streams[int(each["stream"])]
        place, kind = found.place(int(each["line"])), int(each["kind"])
        return [place.line if place else 0, kind, int(on["handle"]), int(bool(on["thread"])), int(each["event"]),
                int(each["value"]), found.kernel(int(each["kernel"])) if kind == 1 else "", int(each["visit"]),
                int(each["marked"]), int(each["slot"])]
    first = int(header["next"]) - len(found.entries)
    return {
        "entries": [of(each) for each in found.entries], "captured": [of(each) for each in found.captured[1:]],
        "streams": [[int(on["context"]), int(on["handle"]), int(bool(on["thread"])),
                     *(int(on[name]) for name in ("last", "marked", "settled", "gone"))] for on in streams],
        "captures": [[int(on[name]) for name in ("capture", "stream", "last", "marked", "first", "is_origin")]
                     for on in found.tables["captures"]],
        "marks": int(header["marks"]), "error": [int(header["error_code"]), found.place(int(header["error_line"])).line
                                                 if header["error_code"] else 0],
    }
"""
"""A function that returns what the ring has, without what differs from run to run."""
