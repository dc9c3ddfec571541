"""Makes an `Uploads` table of a trace's metadata (the JSON members beside its list of events). The
metadata of a trace of a virtual GPU tells, under the key "unstall", when the program copied data to
the device, and which calls used the data.

The metadata identifies a call by its correlation id.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec
import numpy as np
from msgspec import Struct

from unstall.read.row_ids import rows_by_id
from unstall.timeline.columns import I8, I64, Uploads
from unstall.timeline.limits import MOST_UPLOADS

_Id: TypeAlias = Annotated[int, msgspec.Meta(ge=-1, lt=2**62)]
_Row: TypeAlias = Annotated[int, msgspec.Meta(ge=-1, lt=MOST_UPLOADS)]
_Content: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
DescribedUpload: TypeAlias = tuple[_Id, _Content, _Row, _Id, _Id, _Id, bool]
"""One row of the table `Uploads` (copies to the device) as a trace file has it: the values of its
columns, in their order. Calls are given by their ids in the file.
"""


class DescribesUploads(Struct):
    """The field of a trace file, under its key "unstall", that tells the uploads (copies to the device)."""

    uploads: list[DescribedUpload] = []


def uploads_of(told: list[DescribedUpload], kind: I8, correlation: I64, external: I64) -> Uploads:
    """Returns a table of the uploads (copies to the device) that a trace file tells. Replaces ids
    of calls by rows of the timeline.

    Leaves out an upload if the trace file lacks its call, or a call that used its data.

    Args:
        told: The uploads as the trace file tells them.
        kind: The HostKind of each row of `timeline.host`.
        correlation: The correlation id of each row of `timeline.host`.
        external: The external id of each row of `timeline.host`.
    """
    if not told:
        return Uploads.none()
    row_of = rows_by_id(kind, correlation, external)
    row_of[-1] = -1
    kept = [upload[0] >= 0 and all(number in row_of for number in (upload[0], *upload[3:6])) for upload in told]
    numbers = np.append(np.where(kept, np.cumsum(kept) - 1, -1), -1)
    rows = [upload for upload, keep in zip(told, kept, strict=True) if keep]
    previous = np.array([upload[2] for upload in rows], np.int64)

    def calls(column: int) -> np.ndarray:
        return np.array([row_of[upload[column]] for upload in rows], np.int32)

    return Uploads(
        call=calls(0),
        content=np.array([upload[1] for upload in rows], np.int32),
        previous=numbers[np.where(previous < len(told), previous, -1)].astype(np.int32),
        used_before=calls(3),
        first_use=calls(4),
        last_use=calls(5),
        alone=np.array([upload[6] for upload in rows], np.bool_),
    )
