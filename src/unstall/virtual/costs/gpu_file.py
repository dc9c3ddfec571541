"""Reads and writes the GPU files in gpus/. To add a GPU, add a file to that folder and change nothing else.

The file of a measured GPU has tables of calls. The file of a GPU that is known only from its data sheet has no tables:
`like` is the name of a similar measured GPU. The costs come from the tables of the similar GPU, scaled by the peak
rates of both GPUs.
"""

from __future__ import annotations

from dataclasses import fields
from difflib import get_close_matches
from functools import lru_cache
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec

from unstall.decoding import from_json
from unstall.errors import UsageError
from unstall.virtual.costs.collectives import PCIE, Links
from unstall.virtual.costs.model import DeviceFacts, HostCosts, Limits, Startup
from unstall.virtual.costs.origins import Origin, Part

SCHEMA = "unstall.gpu/2"
_EARLIER = "unstall.gpu/1"
TableRow: TypeAlias = list[Any]
"""A list of ints and lists of ints. `tables.of_rows` checks the form of a row."""
Direction = Literal["HtoD", "DtoH", "DtoD", "PtoP"]


class DeviceEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The device properties that torch reports, and the memory of a CUDA context. Sizes are in bytes."""

    name: str
    capability: tuple[int, int]
    multiprocessors: int
    l2_bytes: int
    total_bytes: int
    context_bytes: int


class Peaks(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Peak dense rates of a GPU.

    `float32`, `half` and `float64` are FLOPs per ns. `bytes` is bytes per ns of the device memory, and `l2_bytes` is
    bytes per ns of the L2 cache. `floor_ns` is the duration of an empty kernel in ns.
    """

    float32: float
    half: float
    float64: float
    bytes: float
    l2_bytes: float
    floor_ns: float


class GpuFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of one file in gpus/.

    `host` and `limits` have only values that differ from the GPU that `like` names. If `like` is None, they have only
    values that differ from the defaults of `HostCosts` and `Limits`. `note` is a short summary of `origins`.
    `known_error` describes the error when times of whole programs are predicted.

    `copies` has rows [direction, pinned, bytes, ns], and `memsets` has rows [bytes, ns]. `operators_host_ns` has the
    host time of each operator, without launches and allocations. `tables` has rows of measured calls, by family and
    variant. A row has the values of the family's axes, an index into `sequences`, the duration of each kernel in ns,
    and the bytes of temporary allocations. A sequence is a list of indices into `kernels`, which has the kernel names.
    """

    schema: Literal["unstall.gpu/2"]
    source: Literal["measured", "data sheet"]
    note: str
    known_error: str
    device: DeviceEntry
    peaks: Peaks
    copies: list[tuple[Direction, bool, int, int]]
    memsets: list[tuple[int, int]]
    like: str | None = None
    host: dict[str, int] = {}
    limits: dict[str, int | float] = {}
    links: Links | None = None
    workspaces: dict[str, int] = {}
    startup: Startup | None = None
    operators_host_ns: dict[str, int] = {}
    kernels: list[str] = []
    sequences: list[list[int]] = []
    tables: dict[str, dict[str, list[TableRow]]] = {}
    origins: dict[Part, Origin] = {}


class Gpu:
    """A GPU and its file. `name` is the name by which users select the GPU, such as "h200"."""

    def __init__(self, name: str, file: GpuFile) -> None:
        self.name = name
        self.file = file

    @property
    def facts(self) -> DeviceFacts:
        device = self.file.device
        return DeviceFacts(device.name, device.total_bytes, device.context_bytes)

    @property
    def host(self) -> HostCosts:
        return HostCosts(**(self.measured.file.host | self.file.host))

    @property
    def limits(self) -> Limits:
        return Limits(**(self.measured.file.limits | self.file.limits))  # type: ignore[arg-type]

    @property
    def links(self) -> Links:
        return self.file.links or PCIE

    @property
    def startup(self) -> Startup:
        return self.file.startup or self.measured.file.startup or Startup()

    @property
    def measured(self) -> Gpu:
        """The measured GPU whose tables this GPU uses. It may be this GPU itself.

        Raises UsageError if `like` in the file names an unknown GPU.
        """
        return gpu_named(self.file.like) if self.file.like else self


def gpu_names() -> list[str]:
    """Returns the names of all GPUs in gpus/, sorted."""
    return sorted(entry.name.removesuffix(".json") for entry in _folder().iterdir() if entry.name.endswith(".json"))


@lru_cache(maxsize=8)
def gpu_named(name: str) -> Gpu:
    """Returns a GPU. `name` is its name or the path of a .json file of `unstall calibrate`.

    Raises UsageError for an unknown GPU.
    """
    if name.endswith(".json"):
        return Gpu(Path(name).stem, _read(Path(name)))
    if name not in gpu_names():
        raise UsageError(
            f"gpu: {name!r} is none of {', '.join(gpu_names())}, nor a .json file of `unstall calibrate`{_meant(name)}"
        )
    return Gpu(name, decode(_folder().joinpath(f"{name}.json").read_bytes(), name))


def _meant(name: str) -> str:
    """Returns a suggestion for an unknown name, as text, or "".

    It suggests a GPU whose name begins with the unknown name. If there is no such GPU, it suggests a GPU with a similar
    name.
    """
    longer = [known for known in gpu_names() if name and known.startswith(name)]
    near = longer or get_close_matches(name, gpu_names(), n=1)
    return f"; did you mean {near[0]}?" if near else ""


class _Schema(msgspec.Struct):
    schema: str = ""


def decode(data: bytes, what: str) -> GpuFile:
    """Decodes and checks a GPU file.

    If the data is invalid, raises UsageError with a message that begins with `what`.
    """
    try:
        file = from_json(data, GpuFile)
        _check(file)
    except (msgspec.DecodeError, ValueError) as error:
        if _is_earlier(data):
            raise UsageError(
                f"{what}: written by an earlier version. Measure the GPU again, by `unstall calibrate`"
            ) from None
        raise UsageError(f"{what}: not a GPU's description: {error}") from None
    return file


def _is_earlier(data: bytes) -> bool:
    try:
        return from_json(data, _Schema).schema == _EARLIER
    except (msgspec.DecodeError, ValueError):
        return False


def encode(file: GpuFile) -> bytes:
    """Encodes a GPU file as JSON. Each table row has its own line, so that people can read the file and diffs are
    small."""
    return (_written(msgspec.to_builtins(file), 0) + "\n").encode()


def _written(value: object, depth: int) -> str:
    if depth < 4 and isinstance(value, dict) and value:
        inner = ",\n".join(
            f"{' ' * (depth + 1)}{_compact(key)}: {_written(part, depth + 1)}" for key, part in value.items()
        )
        return f"{{\n{inner}\n{' ' * depth}}}"
    if isinstance(value, list) and value and isinstance(value[0], (list, tuple, str)):
        return "[\n" + ",\n".join(_compact(part) for part in value) + "]"
    return _compact(value)


def _compact(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _check(file: GpuFile) -> None:
    from unstall.virtual.costs.families import FAMILIES

    for what, given, kind in (("host", file.host, HostCosts), ("limits", file.limits, Limits)):
        unknown = sorted(set(given) - {field.name for field in fields(kind)})
        if unknown:
            raise ValueError(f"{what} has no {', '.join(unknown)}")
    if bool(file.tables) == bool(file.like):
        raise ValueError("it has either tables or the name of a GPU that it is like")
    unknown = sorted(set(file.tables) - set(FAMILIES))
    if unknown:
        raise ValueError(f"no family {', '.join(unknown)}")
    if any(not 0 <= kernel < len(file.kernels) for sequence in file.sequences for kernel in sequence):
        raise ValueError("a sequence has a kernel that there is no name of")
    if not file.copies or not file.memsets:
        raise ValueError("copies and memsets are missing")


def _read(path: Path) -> GpuFile:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    return decode(data, str(path))


def _folder() -> Traversable:
    return resources.files("unstall.virtual") / "gpus"
