"""The host no longer waits for the device: values stay on the device, or are read later."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from unstall.locate.kinds import OF_THE_DRIVER
from unstall.replay.program import Code, Program
from unstall.timeline.columns import Bool, CopyDirection
from unstall.what_if.copy_waits import waits_in_call
from unstall.what_if.place import EditPlace
from unstall.what_if.rewrites import neutral
from unstall.what_if.staging import OPERATORS, STAGING_NS, limited, unexplained_ns, usual_launch
from unstall.what_if.subject import SYNCS, Subject

READ_BACK_BYTES = 4096
"""The largest copy to the host, in bytes, that counts as reading a value. A larger one counts as copying data."""


def apply(subject: Subject, place: EditPlace | None) -> Subject:
    """Returns the run without the waits at `place` (None for all places). Operations at `place`
    that only read a value for the host are removed, too.

    Calls to the driver for memory, such as `cudaMalloc`, stay, even if they wait. The edit
    `keep-cache` removes these calls.
    """
    cut, staying = without_waits(subject, subject.at(place))
    notes = []
    if staying and place is not None:
        stay = (
            "1 wait stays, as its copy itself blocks"
            if staying == 1
            else f"{staying:,} waits stay, as the copies themselves block"
        )
        notes.append(f"{stay} the host: first pin their memory")
    return subject.with_program(cut, *notes)


def without_waits(subject: Subject, chosen: Bool) -> tuple[Program, int]:
    """Returns `(program, staying)`: the program without some of its waits, and how many of them stay because a copy
    itself blocks. `chosen` is a mask of the instructions. What only reads a value there is removed, too.
    """
    do, host = subject.program.instructions, subject.timeline.host
    driver = np.isin(host.kind, OF_THE_DRIVER)
    syncs = chosen & np.isin(do.code, SYNCS) & ~subject.instructions_of(driver)
    staged = syncs & waits_in_call(subject.program, do.code == Code.LAUNCH)
    waits = syncs & ~staged
    return neutral(_without(subject, _read_backs(subject, waits), waits, driver), waits), int(staged.sum())


def _without(subject: Subject, read_back: Bool, waits: Bool, driver: Bool) -> Program:
    """Returns the program without the host events in `read_back`, which read values.

    Other work within these events stays, such as an allocation, or the loading of a kernel at its
    first use.

    Args:
        subject: The run.
        read_back: A mask of `timeline.host`: the events to remove.
        waits: A mask of the instructions: the waits to remove.
        driver: A mask of `timeline.host`: events in which the driver works. These stay.
    """
    if not read_back.any():
        return subject.program
    cut, do = subject.cut(read_back, spare=driver), subject.program.instructions
    copies = (do.host >= 0)[subject.program.launcher]
    copies[copies] = subject.within(do.host[subject.program.launcher[copies]], read_back)
    most = np.full(len(do), STAGING_NS + OPERATORS * usual_launch(subject)[0])
    removed = limited(subject, do.work - cut.instructions.work, np.flatnonzero(waits), most)
    call = cut.instructions.call + unexplained_ns(subject, copies)
    return replace(cut, instructions=replace(cut.instructions, work=do.work - removed, call=call))


def _read_backs(subject: Subject, waits: Bool) -> Bool:
    """Returns a mask of `timeline.host`: the events to remove together with the waits in `waits`,
    which is a mask of the instructions.

    They are operations that only read a value and wait for it. Of an operation that also computes,
    only the copies of values are in the mask.
    """
    timeline, operation = subject.timeline, subject.places.operation
    do, device = subject.program.instructions, timeline.device
    around = np.unique(operation[do.host[waits]])
    around = around[around >= 0]
    launched = device.launch[device.launch >= 0]
    reads = np.zeros(len(timeline.host), dtype=np.bool_)
    reads[launched] = ((device.direction == CopyDirection.DEVICE_TO_HOST) & (device.bytes <= READ_BACK_BYTES))[
        device.launch >= 0
    ]
    other = np.unique(operation[launched[~reads[launched]]])
    gone = np.zeros(len(timeline.host), dtype=np.bool_)
    gone[np.setdiff1d(around, other)] = True
    # If an operation also computes, only its reading is removed.
    copies = launched[reads[launched]]
    gone[copies[np.isin(operation[copies], around)]] = True
    return gone
