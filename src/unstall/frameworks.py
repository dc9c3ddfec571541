"""Classifies a source file: code of the user, code of unstall, or code of torch, related packages and the standard
library.

Recorders import this module into the recorded program, so the module imports very little.
"""

from __future__ import annotations

import os
import re
import sys
from functools import lru_cache
from pathlib import Path

OURS = str(Path(__file__).parent) + os.sep  # this whole package, also in a checkout
_HELPERS = tuple(OURS + room + os.sep for room in ("fix", "measuring"))  # programs call these
FRAMEWORKS = frozenset(
    {
        *("torch", "torchvision", "torchaudio", "torchtext", "torchdata", "torchgen", "torchao", "functorch"),
        *("triton", "numpy", "unstall"),
        # What runs a notebook's cells.
        *("IPython", "ipykernel", "ipykernel_launcher", "jupyter_client", "traitlets", "tornado", "zmq", "comm"),
    }
)
# Packages that people install rather than write. In a trace their paths look like those of the user's own folders.
LIBRARIES = frozenset(
    {
        *("transformers", "accelerate", "diffusers", "peft", "trl", "datasets", "evaluate", "tokenizers"),
        *("sentence_transformers", "optimum", "bitsandbytes", "safetensors", "huggingface_hub"),
        *(
            "lightning",
            "lightning_fabric",
            "lightning_utilities",
            "pytorch_lightning",
            "torchmetrics",
            "timm",
            "deepspeed",
            "xformers",
        ),
        *("flash_attn", "apex", "fairscale", "torch_geometric", "monai", "fastai", "ignite", "composer", "torchtune"),
        *("ultralytics", "open_clip", "einops", "kornia", "detectron2", "mmcv", "mmengine", "tqdm", "wandb", "vllm"),
    }
)
# Names of standard library modules that in a trace are far more often the user's own folders.
_OWN = frozenset({"test", "tests", "this", "code", "idlelib", "turtledemo"})
_FORMER_STDLIB = frozenset({"asynchat", "asyncore", "distutils", "imp", "lib2to3", "smtpd"})
# Code typed into IPython has a file name in angle brackets too, but is the user's.
_GENERATED = re.compile(r"(^|/)torchinductor_|(^|/)\.?triton/cache/|^<(?!ipython-input-)")
MODULE_CALL = re.compile(r"torch/nn/modules/module\.py: (Module\.)?_(wrapped_)?call_impl$")
"""Matches a text "file: function" of a frame in torch that calls a module's `forward`. Since torch 2.1, each call of a
module has two of these frames."""
PREFETCH_WAIT = "enumerate(DataLoader)#unstall.prefetch.__next__"
"""The name of the annotation around a wait for a batch of `unstall.prefetch`. It begins like the name that torch's
DataLoader uses."""
_INSTALLED = re.compile(r"^.{0,4096}(?:site-packages|dist-packages|lib/python\d+\.\d+)/")


def is_left_out_of_stacks(path: str) -> bool:
    """Returns whether stacks omit frames of this file.

    Stacks omit frames of unstall's files, except the files of `unstall.fix` and `unstall.measuring`, which programs
    call.
    """
    return path.startswith(OURS) and not path.startswith(_HELPERS)


@lru_cache(4096)
def is_users(path: str) -> bool:
    """Returns whether this is a file that the user edits. Such a file belongs neither to unstall nor to an installed
    package."""
    return not path.startswith(OURS) and not is_installed(path)


def top_module(path: str) -> str:
    """Returns the top-level module of a recorded path, such as "torch" for "torch/nn/modules/module.py"."""
    path = _INSTALLED.sub("", path.replace("\\", "/"), count=1)
    return path.lstrip("/").split("/", 1)[0].removesuffix(".py")


def is_installed(path: str) -> bool:
    """Returns whether this file belongs to a framework or to another installed package. Users do not edit such files.

    A path below a library folder (such as site-packages) belongs to a package. Some traces strip the `sys.path` prefix
    from paths. In these traces, only well-known packages are recognized, by name.
    """
    return bool(_INSTALLED.match(path.replace("\\", "/"))) or top_module(path) in LIBRARIES or is_framework(path)


def is_framework(path: str) -> bool:
    """Returns whether this file is generated code, or belongs to torch, a related package, numpy or the standard
    library.

    Traces strip `sys.path` prefixes from paths, so the name of the top-level module decides. An absolute path outside
    of library folders belongs to the user.
    """
    if not path or _GENERATED.search(path):
        return True
    path = path.replace("\\", "/")
    if (path.startswith("/") or path[1:3] == ":/") and not _INSTALLED.match(path):
        return False
    top = top_module(path)
    return top in FRAMEWORKS or (top in sys.stdlib_module_names | _FORMER_STDLIB and top not in _OWN)
