"""Reads and writes the files of GPUs in gpus/. To add a GPU, add a file to that folder, and change
nothing else.

The file of a measured GPU has tables of measured calls. The file of a GPU that is known only from
its data sheet has none. It names a similar GPU that was measured, and the costs come from the
tables of that GPU, scaled by the peak rates of both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from functools import lru_cache
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Raw

from unstall.decoding import from_json
from unstall.did_you_mean import most_similar, suggestion
from unstall.errors import UsageError
from unstall.virtual.costs.collectives import PCIE, Links
from unstall.virtual.costs.model import DeviceFacts, HostCosts, Limits, Startup
from unstall.virtual.costs.occupancy import MOST, Block
from unstall.virtual.costs.origins import Origin, Part

SCHEMA = "unstall.gpu/6"
_LONGEST_NS = 3_600 * 10**9
_LARGEST_SHARE = 100.0
_LARGEST_PACE = 100
_MOST_OTHERS = 1_000
_EARLIER = tuple(f"unstall.gpu/{version}" for version in range(1, 6))
Direction = Literal["HtoD", "DtoH", "DtoD", "PtoP"]


class DeviceEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The properties of a device as torch reports them, and how much of its memory a CUDA context
    takes. Sizes are in bytes.
    """

    name: str
    capability: tuple[int, int]
    multiprocessors: int
    l2_bytes: int
    total_bytes: int
    context_bytes: int


class Peaks(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The peak rates of a GPU, for dense matrices.

    Attributes:
        float32: The rate of float32 without tensor cores, in FLOPs per ns.
        half: The rate of float16 and bfloat16, in FLOPs per ns.
        float64: The rate of float64, in FLOPs per ns.
        bytes: The rate of the device memory, in bytes per ns.
        l2_bytes: The rate of the L2 cache, in bytes per ns.
        floor_ns: How long an empty kernel takes, in ns.
    """

    float32: float
    half: float
    float64: float
    bytes: float
    l2_bytes: float
    floor_ns: float


class GpuFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of the file of a GPU.

    Attributes:
        schema: The version of the file's format.
        source: Whether the GPU was measured, or is known from its data sheet.
        note: A short summary of `origins`.
        known_error: How wrong predictions for whole programs were, as a text that reports show.
        device: The properties of the device.
        peaks: Its peak rates.
        copies: The measured copies, as `(direction, pinned, bytes, ns)`.
        memsets: The measured memsets, as `(bytes, ns)`.
        like: The name of a similar GPU that was measured; None if this one was measured.
        host: Costs of the host, by the name of a field of `HostCosts`. Only those are here that
            differ from the GPU that `like` names, or from the defaults if it names none.
        host_pace: The time of this host's work, over what `host` and `operators_host_ns` say, such as 0.6 for a fast
            CPU. None: as the GPU that `like` names, or 1.
        limits: Latencies and limits of the device, by the name of a field of `Limits`. As for
            `host`, only those that differ.
        links: How several such GPUs are connected; None if it is unknown.
        workspaces: The bytes of the workspaces that torch gives to "cublas" and "cublaslt".
        startup: What first uses cost the host; None if it was not measured.
        operators_host_ns: By the name of an operator, its host time in ns, without launches and
            allocations, on a host whose pace is 1.
        kernels: The names of kernels.
        kernel_modules: The module of each kernel, as an index into the modules of `startup`; -1 if it is unknown.
            Empty if modules were not measured.
        kernel_blocks: What a thread block of each kernel uses of a multiprocessor; `UNKNOWN` if it is unknown. Empty if
            blocks were not measured.
        sequences: The kernels of a call in order, as indices into `kernels`.
        tables: Measured calls, by family of operators and variant, as JSON (see `tables.as_rows`). A
            program asks for few of the variants, so each is decoded when it is first asked for. A
            row has the call's value on each axis of the family, an index into `sequences`, the ns
            of each kernel, and, if there are any, the bytes of each temporary allocation, the number
            of thread blocks of each kernel, and what it takes in loops.
        origins: Where each part of the file comes from.
    """

    schema: Literal["unstall.gpu/6"]
    source: Literal["measured", "data sheet"]
    note: str
    known_error: str
    device: DeviceEntry
    peaks: Peaks
    copies: list[tuple[Direction, bool, int, int]]
    memsets: list[tuple[int, int]]
    like: str | None = None
    host: dict[str, int] = {}
    host_pace: float | None = None
    limits: dict[str, int | float] = {}
    links: Links | None = None
    workspaces: dict[str, int] = {}
    startup: Startup | None = None
    operators_host_ns: dict[str, int] = {}
    kernels: list[str] = []
    kernel_modules: list[int] = []
    kernel_blocks: list[Block] = []
    sequences: list[list[int]] = []
    tables: dict[str, dict[str, Raw]] = {}
    origins: dict[Part, Origin] = {}


class Gpu:
    """A GPU that can be a virtual one.

    Attributes:
        name: The name by which users ask for it, such as "h200".
        file: The content of its file.
    """

    def __init__(self, name: str, file: GpuFile) -> None:
        self.name = name
        self.file = file

    @property
    def facts(self) -> DeviceFacts:
        """The device's name and memory, which programs and timelines see."""
        device = self.file.device
        return DeviceFacts(device.name, device.total_bytes, device.context_bytes, device.multiprocessors)

    @property
    def host(self) -> HostCosts:
        """The costs of calls and of other work on the host."""
        return HostCosts(**(self.measured.file.host | self.file.host)).at_pace(self.host_pace)

    @property
    def host_pace(self) -> float:
        """The time of the host's work, over what `host` and `operators_host_ns` of the file say."""
        return self.file.host_pace or self.measured.file.host_pace or 1.0

    @property
    def limits(self) -> Limits:
        """The latencies and limits of the device."""
        return Limits(**(self.measured.file.limits | self.file.limits))  # type: ignore[arg-type]

    @property
    def links(self) -> Links:
        """How several such GPUs of one machine are connected. PCIe 3.0 if the file does not say."""
        return self.file.links or PCIE

    @property
    def startup(self) -> Startup:
        """What first uses cost the host. They cost nothing if neither this GPU nor the one it is
        like was measured in that.
        """
        return self.file.startup or self.measured.file.startup or Startup()

    @property
    def measured(self) -> Gpu:
        """The GPU whose measured calls predict this GPU's costs: this GPU if it was measured, else
        the one that `like` in its file names. Raises UsageError if there is no such GPU.
        """
        return gpu_named(self.file.like) if self.file.like else self


def gpu_names() -> list[str]:
    """Returns the names of all GPUs that have a file in gpus/, sorted."""
    return sorted(entry.name.removesuffix(".json") for entry in _folder().iterdir() if entry.name.endswith(".json"))


@lru_cache(maxsize=8)
def gpu_named(name: str) -> Gpu:
    """Returns a GPU. Raises UsageError if there is no such GPU, or if its file is not valid.

    Args:
        name: The name of the GPU, or the path of a .json file that `unstall calibrate` wrote.
    """
    if name.endswith(".json"):
        return Gpu(Path(name).stem, _read(Path(name)))
    if name not in gpu_names():
        raise UsageError(
            f"gpu: there is no GPU {name!r}: give {', '.join(gpu_names())}, or a .json file that `unstall calibrate` "
            f"wrote{_meant(name)}"
        )
    return Gpu(name, decode(_folder().joinpath(f"{name}.json").read_bytes(), name))


def _meant(name: str) -> str:
    """Returns the end of an error message: the GPU that the user may have meant by the unknown name
    `name`. It is one whose name begins with `name`, or else one with a similar name. Returns "" if
    there is none.
    """
    longer = [known for known in gpu_names() if name and known.startswith(name)]
    return suggestion(longer[0] if longer else most_similar(name, gpu_names()))


class _Schema(msgspec.Struct):
    schema: str = ""


def decode(data: bytes, what: str) -> GpuFile:
    """Returns the file of a GPU, checked. Raises UsageError if it is not valid.

    Args:
        data: The content of the file.
        what: What the error message begins with, such as the path of the file.
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
        return from_json(data, _Schema).schema in _EARLIER
    except (msgspec.DecodeError, ValueError):
        return False


def encode(file: GpuFile) -> bytes:
    """Returns the file of a GPU as JSON. Each measured call is on a line of its own, so that people
    can read the file, and diffs are small.
    """
    parts = {
        name: part if name == "tables" else msgspec.to_builtins(part)
        for name, part in msgspec.structs.asdict(file).items()
    }
    return (_written(parts, 0) + "\n").encode()


def as_json(rows: Sequence[object]) -> Raw:
    """Returns a list as JSON, each row on a line of its own."""
    return Raw(_written(rows, 0).encode())


def _written(value: object, depth: int) -> str:
    if isinstance(value, Raw):
        return bytes(value).decode()
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
    host = HostCosts(**file.host)
    if not 0 <= host.warm_others < host.cold_others <= _MOST_OTHERS:
        raise ValueError(f"warm_others is not less than cold_others, or this is more than {_MOST_OTHERS}")
    if file.host_pace is not None and not 1 / _LARGEST_PACE <= file.host_pace <= _LARGEST_PACE:
        raise ValueError(f"host_pace is not within 1/{_LARGEST_PACE} and {_LARGEST_PACE}")
    if bool(file.tables) == bool(file.like):
        raise ValueError("it has either tables or the name of a GPU that it is like")
    unknown = sorted(set(file.tables) - set(FAMILIES))
    if unknown:
        raise ValueError(f"no family {', '.join(unknown)}")
    if any(not 0 <= kernel < len(file.kernels) for sequence in file.sequences for kernel in sequence):
        raise ValueError("a sequence has a kernel that there is no name of")
    startup = file.startup or Startup()
    _check_startup(startup)
    modules = len(startup.modules)
    if len(file.kernel_modules) not in (0, len(file.kernels)) or any(at >= modules for at in file.kernel_modules):
        raise ValueError("kernel_modules does not fit the kernels and the modules")
    bounds = [figure for block in file.kernel_blocks for figure in block]
    if len(file.kernel_blocks) not in (0, len(file.kernels)) or not all(0 <= each <= MOST for each in bounds):
        raise ValueError("kernel_blocks does not fit the kernels")
    if not file.copies or not file.memsets:
        raise ValueError("copies and memsets are missing")


def _check_startup(startup: Startup) -> None:
    modules, cold = len(startup.modules), startup.cold
    if any(not 0 <= at < modules for _, members in startup.shared for at in members):
        raise ValueError("startup.shared has a module that there is no time of")
    times = [startup.init, startup.context, startup.kernel, cold.ns, *startup.modules, *cold.operators.values()]
    times += [*startup.shapes.values(), *startup.compiled.values()]
    times += [ns for ns, _ in (*startup.libraries, *startup.shared)]
    if not all(0 <= ns <= _LONGEST_NS for ns in times) or not 0 < cold.brief_ns <= _LONGEST_NS:
        raise ValueError("startup has a time that is negative or far too long")
    if not all(0 <= share <= _LARGEST_SHARE for share in (startup.early, cold.share, cold.again)):
        raise ValueError("startup has a share that is negative or far too large")


def _read(path: Path) -> GpuFile:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    return decode(data, str(path))


def _folder() -> Traversable:
    return resources.files("unstall.virtual") / "gpus"
