"""Convolutions, normalizations and recurrent layers, in training and in evaluation."""

import contextlib
from collections.abc import Callable
from functools import partial

import torch
from torch import nn

from cases import DTYPES, backward, normal

LAST = torch.channels_last
IMAGE, LINE, VOLUME = (2, 8, 12, 12), (2, 8, 12), (2, 4, 6, 6, 6)
CONVOLUTIONS = {
    "conv2d": (partial(nn.Conv2d, 8, 16, 3, padding=1), IMAGE),
    "conv2d_nobias": (partial(nn.Conv2d, 8, 16, 3, bias=False, stride=2), IMAGE),
    "conv2d_1x1": (partial(nn.Conv2d, 8, 16, 1), IMAGE),
    "conv2d_group": (partial(nn.Conv2d, 8, 16, 3, groups=4), IMAGE),
    "depthwise": (partial(nn.Conv2d, 8, 8, 3, groups=8), IMAGE),
    "dilated": (partial(nn.Conv2d, 8, 16, 3, dilation=2), IMAGE),
    "convT2d": (partial(nn.ConvTranspose2d, 8, 16, 3, stride=2), IMAGE),
    "conv1d": (partial(nn.Conv1d, 8, 16, 3), LINE),
    "conv1d_same": (partial(nn.Conv1d, 8, 16, 4, padding="same"), LINE),
    "convT1d": (partial(nn.ConvTranspose1d, 8, 16, 3), LINE),
    "conv3d": (partial(nn.Conv3d, 4, 8, 3), VOLUME),
    "convT3d": (partial(nn.ConvTranspose3d, 4, 8, 3), VOLUME),
    "depthwise3d": (partial(nn.Conv3d, 4, 4, 3, groups=4), VOLUME),
    "conv2d_unbatched": (partial(nn.Conv2d, 8, 16, 3), (8, 12, 12)),
    "conv2d_empty": (partial(nn.Conv2d, 8, 16, 3), (0, 8, 12, 12)),
}
PICTURE = (4, 8, 10, 10)
NORMS = {
    "bn1d": (partial(nn.BatchNorm1d, 8), (4, 8, 10)),
    "bn1d2": (partial(nn.BatchNorm1d, 8), (16, 8)),
    "bn2d": (partial(nn.BatchNorm2d, 8), PICTURE),
    "bn3d": (partial(nn.BatchNorm3d, 8), (4, 8, 5, 5, 5)),
    "bn2d_na": (partial(nn.BatchNorm2d, 8, affine=False), PICTURE),
    "bn2d_nt": (partial(nn.BatchNorm2d, 8, track_running_stats=False), PICTURE),
    "ln": (partial(nn.LayerNorm, 64), (4, 8, 64)),
    "ln_na": (partial(nn.LayerNorm, 64, elementwise_affine=False), (4, 8, 64)),
    "gn": (partial(nn.GroupNorm, 2, 8), PICTURE),
    "gn_na": (partial(nn.GroupNorm, 2, 8, affine=False), (4, 8, 10)),
    "rms": (partial(nn.RMSNorm, 64), (4, 8, 64)),
    "rms_na": (partial(nn.RMSNorm, 64, elementwise_affine=False), (4, 8, 64)),
    "in2d": (partial(nn.InstanceNorm2d, 8), PICTURE),
    "in2d_a": (partial(nn.InstanceNorm2d, 8, affine=True, track_running_stats=True), PICTURE),
}
RECURRENT = {
    "1": {},
    "2bi": {"num_layers": 2, "bidirectional": True},
    "bf": {"batch_first": True},
    "nobias": {"bias": False},
}


def layer(
    make: Callable[[], nn.Module],
    shape: tuple,
    train: bool,
    dtype: torch.dtype = torch.float32,
    data: torch.dtype | None = None,
    memory_format: torch.memory_format | None = None,
    cudnn: bool = True,
    autocast: torch.dtype | None = None,
    wants_input: bool = True,
) -> Callable[[], None]:
    def run() -> None:
        module = make().to("cuda", dtype).train(train)
        x = normal(*shape, dtype=data or dtype)
        if memory_format:
            module = module.to(memory_format=memory_format)
            x = (x.contiguous if data else x.to)(memory_format=memory_format)
        x.requires_grad_(train and wants_input)
        casting = torch.autocast("cuda", autocast) if autocast else contextlib.nullcontext()
        with torch.backends.cudnn.flags(enabled=cudnn), torch.set_grad_enabled(train):
            with casting:
                out = module(x)
            if train:
                backward(out)

    return run


def cases() -> dict[str, Callable[[], None]]:
    found = {}
    for train in (False, True):
        when = "train" if train else "infer"
        for name, (make, shape) in CONVOLUTIONS.items():
            for dtype_name, dtype in {**DTYPES, "f64": torch.float64}.items():
                found[f"conv/{name}/{dtype_name}/{when}"] = layer(make, shape, train, dtype)
            found[f"conv/{name}/nograd_in/{when}"] = layer(make, shape, train, wants_input=False)
            found[f"conv/{name}/nocudnn/{when}"] = layer(make, shape, train, cudnn=False)
            if len(shape) == 4:
                for dtype_name, dtype in DTYPES.items():
                    found[f"conv/{name}/cl/{dtype_name}/{when}"] = layer(make, shape, train, dtype, memory_format=LAST)
                found[f"conv/{name}/autocast/{when}"] = layer(make, shape, train, autocast=torch.float16)
        for name, (make, shape) in NORMS.items():
            for dtype_name, dtype in {**DTYPES, "f64": torch.float64}.items():
                found[f"norm/{name}/{dtype_name}/{when}"] = layer(make, shape, train, dtype)
            found[f"norm/{name}/mixed/{when}"] = layer(make, shape, train, data=torch.bfloat16)
            found[f"norm/{name}/nocudnn/{when}"] = layer(make, shape, train, cudnn=False)
            if len(shape) == 4:
                found[f"norm/{name}/cl/{when}"] = layer(make, shape, train, memory_format=LAST)
                found[f"norm/{name}/cl_bf16/{when}"] = layer(make, shape, train, torch.bfloat16, memory_format=LAST)
                found[f"norm/{name}/cl_mixed/{when}"] = layer(
                    make, shape, train, data=torch.float16, memory_format=LAST
                )
        for kind in (nn.LSTM, nn.GRU, nn.RNN):
            for name, options in RECURRENT.items():
                make = partial(kind, 10, 20, **options)
                for dtype_name, dtype in DTYPES.items():
                    found[f"rnn/{kind.__name__}/{name}/{dtype_name}/{when}"] = layer(make, (7, 3, 10), train, dtype)
                found[f"rnn/{kind.__name__}/{name}/nocudnn/{when}"] = layer(make, (7, 3, 10), train, cudnn=False)
        for kind in (nn.LSTMCell, nn.GRUCell, nn.RNNCell):
            for dtype_name, dtype in DTYPES.items():
                found[f"rnn/{kind.__name__}/{dtype_name}/{when}"] = layer(partial(kind, 10, 20), (3, 10), train, dtype)
            found[f"rnn/{kind.__name__}/nobias/{when}"] = layer(partial(kind, 10, 20, bias=False), (3, 10), train)
    return found
