"""Recognises traces in Perfetto's own format, a protobuf message, and in XLA's, which begins alike. unstall reads
neither format.
"""

from __future__ import annotations

LOOK_BYTES = 4096
WHAT_IT_IS = (
    "this is a binary trace (Perfetto's .pftrace, or the .xplane.pb of JAX and TensorFlow), which is not read: export "
    "the run of torch.profiler as Chrome JSON, with a name that ends in .json or .json.gz: "
    "profile.export_chrome_trace('trace.json.gz')"
)

_PACKET = 0x0A  # field 1 of `perfetto.protos.Trace`: a packet, preceded by its length
_MOST_FIELD = 10_000  # number of a packet's field; extensions reach into the thousands
_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5


def begins(text: bytes) -> bool:
    """Returns whether `text`, the start of a file, is the start of a Perfetto trace.

    JSON may begin with the same byte as a Perfetto trace: this byte is a line break. But JSON has
    no control characters below 0x09, and cannot be parsed as the fields of a protobuf message.
    """
    if text[:1] != bytes([_PACKET]) or not any(byte < 0x09 for byte in text):
        return False
    length, at = _varint(text, 1)
    return length > 0 and at > 0 and _are_fields(text, at, at + length)


def _are_fields(text: bytes, at: int, end: int) -> bool:
    """Returns whether text[at:end] is a list of protobuf fields. If `text` is shorter than `end`,
    checks only the fields that `text` contains.
    """
    while at < min(end, len(text)):
        key, at = _varint(text, at)
        if at < 0:
            return True  # cut off within the key
        kind = key & 7
        if not 0 < key >> 3 < _MOST_FIELD or kind not in (_VARINT, _FIXED64, _LENGTH, _FIXED32):
            return False
        if kind == _VARINT:
            at = _varint(text, at)[1]
        elif kind == _LENGTH:
            length, at = _varint(text, at)
            at += length if at > 0 else 0
        else:
            at += 8 if kind == _FIXED64 else 4
        if at < 0:
            return True
    return at == end or end > len(text)


def _varint(text: bytes, at: int) -> tuple[int, int]:
    """Returns `(number, end)`: the protobuf varint that begins at index `at` of `text`, and the
    index after it. Returns (0, -1) if the varint does not end within the text.
    """
    number = shift = 0
    for i in range(at, min(at + 10, len(text))):
        number |= (text[i] & 0x7F) << shift
        shift += 7
        if text[i] < 0x80:
            return number, i + 1
    return 0, -1
