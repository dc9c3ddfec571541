"""Copies tensors from host memory to a device on a separate stream. Tensors in pageable memory are first copied to
pinned buffers (staged). The buffers are reused.

While the driver stages a copy from pageable memory, the host waits, so the copy does not overlap with host work. A copy
from pinned memory overlaps with all other work. To pin memory takes about as long as to copy it (22 µs for 1 MiB, 12 ms
for 256 MiB on an H200's host), so pinned buffers are kept for later copies. After a device tensor has been passed to
the program, this module never writes to it again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic

import torch

from unstall.fix.tensors.accelerator import Accelerator
from unstall.fix.tensors.nesting import Nest, map_tensors, tensors_in
from unstall.fix.tensors.parts import bytes_of, is_simple, record

SMALL_BYTES = 64 << 10  # up to this size the driver copies pageable memory within the call, without a wait
_RING = 8  # most pinned buffers that a loader may refill in turn; beyond that, each nest has its own memory


@dataclass(slots=True)
class Sent(Generic[Nest]):
    """A value whose tensors are being copied to the device. A stream may use the device tensors after it has waited for
    the event `end`.

    Attributes:
        value: A tensor, or nested containers of tensors. The tensors are those on the device.
        tensors: The device tensors that were allocated for the copy.
        start: An event before the copy.
        end: An event after the copy.
        there: The tensors of the value that were on the device already.
        bytes: The bytes of the copied tensors.
        pinned: Whether some tensors are copied directly from pinned memory of the program.
        exposed: Whether the program may write to this pinned memory before the copy has ended.
        late: An event after the copy. A host thread that waits for this event may sleep.
        known_to_have_ended: Whether the copy was seen to have ended.
    """

    value: Nest
    tensors: list[torch.Tensor]
    start: torch.Event
    end: torch.Event
    there: list[torch.Tensor]
    bytes: int
    pinned: bool
    exposed: bool
    late: torch.Event

    known_to_have_ended: bool = False

    def has_ended(self) -> bool:
        """Returns whether the copy has ended. Only one thread may call this method."""
        self.known_to_have_ended = self.known_to_have_ended or bool(self.end.query())
        return self.known_to_have_ended

    def hand_over(self, stream: torch.Stream) -> None:
        """Makes `stream` wait for the copy. Prevents the caching allocator from reusing the memory of the copied
        tensors before `stream` has finished with them."""
        stream.wait_event(self.end)
        record(self.tensors, stream)

    def lend(self, stream: torch.Stream) -> None:
        """Makes `stream`, which the program does not use, wait for the copy. Prevents the caching allocator from
        reusing the memory of all tensors of the value before `stream` has finished with them. This includes the tensors
        that were on the device already, because the program may free them while `stream` uses them."""
        self.hand_over(stream)
        record(self.there, stream)


class Slot:
    """Pinned buffers for the tensors of one value (nested containers of tensors). After the copy from the buffers to
    the device has ended, the buffers are used for another value."""

    def __init__(self) -> None:
        self._buffers: list[torch.Tensor] = []  # uint8 buffers, one for each tensor of a nest
        self._views: list[torch.Tensor | None] = []  # views of the buffers with the last tensors' shapes and dtypes
        self._places = 0
        self._end: torch.Event | None = None
        self.sources: list[torch.Tensor] = []  # pinned tensors of the loader that the copy reads

    def begin(self) -> None:
        """Waits until the previous copy from these buffers has ended. Then prepares the buffers for another value."""
        if self._end is not None and not self._end.query():
            self._end.synchronize()
        self._end, self._places, self.sources = None, 0, []

    def end(self, event: torch.Event) -> None:
        self._end = event

    def is_read(self) -> bool:
        """Returns whether the device has finished copying from these buffers."""
        return self._end is None or bool(self._end.query())

    def stage(self, tensor: torch.Tensor) -> torch.Tensor:
        """Returns a pinned copy of the tensor. The copy has the same shape and dtype. If the tensor is dense, the copy
        also has the same strides."""
        place, self._places = self._places, self._places + 1
        if place == len(self._buffers):
            self._buffers.append(pinned(0))
            self._views.append(None)
        view = self._views[place]
        same = view is not None and view.shape == tensor.shape and view.dtype == tensor.dtype
        if view is None or not same or view.stride() != tensor.stride():
            view = self._views[place] = self._view(place, tensor)
        return view.copy_(tensor)

    def _view(self, place: int, tensor: torch.Tensor) -> torch.Tensor:
        like = torch.empty_like(tensor, device="meta")
        size = bytes_of(like)
        if self._buffers[place].numel() < size:
            self._buffers[place] = pinned(size)
        with torch.inference_mode(False):
            return self._buffers[place][:size].view(tensor.dtype).as_strided(like.shape, like.stride())


class Sender:
    """Copies values (nested containers of tensors) from the host to a device. At most `slots` values are being copied
    at a time. Only one thread may use a `Sender` at a time.

    Args:
        accelerator: The device.
        slots: How many values may be in the process of being copied.
        refills: Whether code that produces the next value, such as a generator, may write to the pinned memory of
            earlier values. Such code assumes that the memory of an earlier value has already been read. So the sender
            waits for the copies of the first values. If the code turns out to reuse memory, the sender waits for all
            copies.
    """

    def __init__(self, accelerator: Accelerator, slots: int, *, refills: bool = True) -> None:
        self.accelerator = accelerator
        self._slots = [Slot() for _ in range(slots)]
        self._next = 0
        self._held: list[list[torch.Tensor]] | None = []  # pinned sources of the first nests, until reuse is decided
        self._refills = self._careful = refills
        self._exposed: torch.Event | None = None  # end of a copy from memory that may be written next
        self._spare = _Spare()

    def wait_until_read(self) -> None:
        """If the program may overwrite the pinned memory of the last value that was sent, waits until the device has
        read this memory. Call this before the program produces the next value."""
        exposed, self._exposed = self._exposed, None
        if exposed is not None:
            self._spare.prepare(
                self.accelerator
            )  # allocate now: the copy engine idles from this copy's end to the next
            if not exposed.query():
                exposed.synchronize()

    def wait_for_slot(self) -> None:
        """Waits until the pinned buffers for the next value are free. The next `send` then does not wait for these
        buffers."""
        self._slots[self._next].begin()

    def send(
        self, value: Nest, stream: torch.Stream, allocate: Callable[[int], None] | None = None, *, patient: bool = True
    ) -> Sent[Nest]:
        """Begins to copy a value to the device. Returns the value on the device, with the events of the copy.

        Args:
            value: A tensor, or nested containers of tensors.
            stream: The stream to copy on.
            allocate: A function that is called with the size of the value in bytes, before device memory is allocated.
            patient: Whether a host thread that waits for the copy may sleep. A thread that sleeps continues about 0.1
                ms late.
        """
        slot = self._slots[self._next]
        self._next = (self._next + 1) % len(self._slots)
        slot.begin()
        if allocate is not None:
            allocate(sum(bytes_of(tensor) for tensor in tensors_in(value)))
        start = self.accelerator.event(timed=True)
        end = self.accelerator.event(timed=True, blocking=patient and not self._careful)
        late = self.accelerator.event(blocking=True) if patient and self._careful else end
        made: list[torch.Tensor] = []
        there: list[torch.Tensor] = []
        copies: list[tuple[torch.Tensor, torch.Tensor]] = []
        total = 0

        def move(tensor: torch.Tensor) -> torch.Tensor:
            nonlocal total
            if tensor.device == self.accelerator.device:
                there.append(tensor)
                return tensor
            moved = self._moved(tensor, slot, copies, stream)
            made.append(moved)
            total += bytes_of(moved)
            return moved

        with self.accelerator.on(stream):
            moved = map_tensors(value, move)
            start.record(stream)
            for target, source in copies:
                target.copy_(source, non_blocking=True)
            end.record(stream)
            if late is not end:
                late.record(stream)
        slot.end(end)
        self._spare.note([target for target, _ in copies], stream)
        exposed = bool(slot.sources) and (self._is_exposed(slot) if self._refills else True)
        if exposed and self._refills:
            self._exposed = end
        return Sent(moved, made, start, end, there, total, bool(slot.sources), exposed, late)

    def _moved(
        self, tensor: torch.Tensor, slot: Slot, copies: list[tuple[torch.Tensor, torch.Tensor]], stream: torch.Stream
    ) -> torch.Tensor:
        device = self.accelerator.device
        simple = type(tensor) is torch.Tensor and is_simple(tensor) and tensor.device.type == "cpu"
        if not simple or tensor.requires_grad or tensor.is_conj() or tensor.is_neg():
            return tensor.to(device)
        target = self._spare.take(tensor, stream)
        if target is None:
            target = torch.empty_like(tensor, device=device)
        if tensor.numel() == 0:
            return target
        if _is_dense(tensor) and tensor.is_pinned():
            slot.sources.append(tensor)
            copies.append((target, tensor))
        else:
            copies.append((target, slot.stage(tensor)))
        return target

    def _is_exposed(self, slot: Slot) -> bool:
        """Returns whether the program may write to pinned memory of `slot` that the device is still reading. Returns
        True until it is known whether the program reuses pinned memory."""
        ranges = [_range_of(tensor) for tensor in slot.sources]

        def is_in(sources: list[torch.Tensor]) -> bool:
            return any(start < past and first < end for first, past in map(_range_of, sources) for start, end in ranges)

        others = (other for other in self._slots if other is not slot)
        again = any(map(is_in, self._held or ())) or any(
            is_in(other.sources) and not other.is_read() for other in others
        )
        if again:
            self._careful, self._held = True, None
        elif self._held is not None:
            self._held.append(slot.sources)
            if len(self._held) > max(_RING, len(self._slots) + 1):
                self._careful, self._held = False, None
        return self._careful


class _Spare:
    """Device tensors for the next value, with the shapes and dtypes of the previous value's tensors. They are allocated
    at times when the host would otherwise only wait."""

    def __init__(self) -> None:
        self._like: list[tuple[torch.Size, torch.dtype]] = []
        self._made: list[torch.Tensor] = []  # in reverse order: the next one is last
        self._stream: torch.Stream | None = None

    def note(self, targets: list[torch.Tensor], stream: torch.Stream) -> None:
        dense = all(target.is_contiguous() for target in targets)
        self._like = [(target.shape, target.dtype) for target in targets] if dense else []
        self._made, self._stream = [], stream

    def prepare(self, accelerator: Accelerator) -> None:
        if self._stream is None:
            return
        try:
            with accelerator.on(self._stream):
                made = [torch.empty(shape, dtype=dtype, device=accelerator.device) for shape, dtype in self._like]
        except torch.OutOfMemoryError:
            return
        self._made = made[::-1]

    def take(self, tensor: torch.Tensor, stream: torch.Stream) -> torch.Tensor | None:
        """Returns the next of the device tensors that were allocated in advance, if it has the shape and dtype of
        `tensor` and was allocated on `stream`. Otherwise returns None."""
        if not self._made or stream != self._stream:
            return None
        spare = self._made[-1]
        if spare.is_inference() != torch.is_inference_mode_enabled():  # left by an iteration in the other mode
            return None
        if spare.shape != tensor.shape or spare.dtype != tensor.dtype or not tensor.is_contiguous():
            self._made = []
            return None
        return self._made.pop()


def pinned(size_bytes: int) -> torch.Tensor:
    """Returns a pinned uint8 tensor in host memory, whatever the default device is. The tensor can be written to inside
    and outside of inference mode."""
    with torch.inference_mode(False):
        return torch.empty(size_bytes, dtype=torch.uint8, device="cpu", pin_memory=size_bytes > 0)


def _is_dense(tensor: torch.Tensor) -> bool:
    if tensor.is_contiguous():
        return True
    channels_last = tensor.dim() == 4 and tensor.is_contiguous(memory_format=torch.channels_last)
    transposed = tensor.dim() == 2 and tensor.t().is_contiguous()
    return bool(channels_last or transposed)


def _range_of(tensor: torch.Tensor) -> tuple[int, int]:
    start = tensor.data_ptr()
    return start, start + bytes_of(tensor)
