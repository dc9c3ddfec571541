"""Reads the data of uploads in a trace's metadata into an `Uploads` table. `virtual/` writes them under the key
"unstall".

Calls are identified by their correlation ids.
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
"""One row of `Uploads` as the trace writes it, with its columns in order. Calls are given by the ids of the trace."""


class DescribesUploads(Struct):
    """The uploads in the entry "unstall" of a trace's metadata."""

    uploads: list[DescribedUpload] = []


def uploads_of(told: list[DescribedUpload], kind: I8, correlation: I64, external: I64) -> Uploads:
    """Returns a table of the uploads that a trace describes. Replaces ids of calls by rows of the timeline.

    Leaves out an upload if its call or one of its uses is unknown. `kind`, `correlation` and
    `external` are columns of the host events.
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
