"""Whose code a file is."""

from __future__ import annotations

import subprocess
import sys

import pytest

from unstall.frameworks import is_framework, top_module


@pytest.mark.parametrize(
    "path",
    [
        "torch/nn/modules/module.py",
        "torchvision/models/resnet.py",
        "/usr/lib/python3.11/site-packages/torch/nn/modules/module.py",
        "/opt/conda/lib/python3.10/site-packages/numpy/core/fromnumeric.py",
        "/usr/lib/python3/dist-packages/numpy/linalg.py",
        "C:/Python311/Lib/site-packages/torch/_tensor.py",
        "triton/runtime/jit.py",
        "threading.py",
        "concurrent/futures/thread.py",
        "/usr/lib/python3.11/threading.py",
        "unstall/guard.py",
        "<string>",
        "<eval_with_key>.7",
        "<frozen importlib._bootstrap>",
        "/home/me/.cache/torchinductor_me/ab/cab.py",
        "colab_kernel_launcher.py",
        "",
    ],
)
def test_code_of_frameworks_is_not_the_users(path: str) -> None:
    assert is_framework(path)


@pytest.mark.parametrize(
    "path",
    [
        "train.py",
        "transformers/models/gpt2/modeling_gpt2.py",
        "/usr/lib/python3.11/site-packages/transformers/trainer.py",
        "/home/me/torch/train.py",
        "C:/work/train.py",
        "tests/test_model.py",
        "code/train.py",
        "torch_geometric/nn/conv.py",
        "mynumpy/ops.py",
        "<ipython-input-3-0123456789ab>",
        "/tmp/ipykernel_71/1234567890.py",
    ],
)
def test_all_other_code_is(path: str) -> None:
    assert not is_framework(path)


@pytest.mark.parametrize(
    ("path", "module"),
    [
        ("torch/nn/modules/module.py", "torch"),
        ("/opt/conda/lib/python3.10/site-packages/numpy/core/fromnumeric.py", "numpy"),
        ("C:\\Python311\\Lib\\site-packages\\torch\\_tensor.py", "torch"),
        ("train.py", "train"),
    ],
)
def test_a_path_is_of_its_top_level_module(path: str, module: str) -> None:
    assert top_module(path) == module


def test_a_recorder_asks_this_without_importing_what_reads_traces() -> None:
    code = "import sys, unstall.frameworks; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert {"msgspec", "numpy", "rich", "torch"}.isdisjoint(done.stdout.split())
