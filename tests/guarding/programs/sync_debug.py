"""torch.cuda.set_sync_debug_mode."""

import warnings

import torch
from telling import show

x = torch.randn(64, 64, device="cuda")
pinned, large = torch.zeros(64, 64).pin_memory(), torch.zeros(1024, 1024)
stream, event = torch.cuda.current_stream(), torch.cuda.Event()
event.record()
CALLS = {
    "item": lambda: x.sum().item(),
    "nonzero": lambda: x.nonzero(),
    "cpu": lambda: x.cpu(),
    "upload": lambda: large.to("cuda"),
    "stream": stream.synchronize,
    "torch.Stream": lambda: torch.Stream.synchronize(stream),
    "staged upload": lambda: large.to("cuda", non_blocking=True),
    "staged download": lambda: large[:64, :64].copy_(x, non_blocking=True),
    "event": event.synchronize,
    "device": torch.cuda.synchronize,
    "malloc": lambda: torch.empty(64 << 20, dtype=torch.uint8, device="cuda"),
    "empty_cache": torch.cuda.empty_cache,
    "add": lambda: x + x,
}


def warned(call):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        call()
    return [str(each.message) for each in seen]


def raised(call):
    try:
        call()
    except RuntimeError as error:
        return [type(error).__name__, str(error)]
    return None


modes = [torch.cuda.get_sync_debug_mode()]
prototype = warned(lambda: torch.cuda.set_sync_debug_mode("warn"))
modes.append(torch.cuda.get_sync_debug_mode())
warns = {name: warned(call) for name, call in CALLS.items()}
again = warned(lambda: torch.cuda.set_sync_debug_mode("error"))
modes.append(torch.cuda.get_sync_debug_mode())
raises = {name: raised(call) for name, call in CALLS.items()}
torch.cuda.set_sync_debug_mode(0)
modes.append(torch.cuda.get_sync_debug_mode())
off = {name: [warned(call), raised(call)] for name, call in CALLS.items()}
unknown = [raised(lambda: torch.cuda.set_sync_debug_mode(7)), raised(lambda: torch.cuda.set_sync_debug_mode("loud"))]
show(modes=modes, prototype=prototype, again=again, warns=warns, raises=raises, off=off, unknown=unknown)
