"""The CUDA build of torch that the virtual GPU stands for: torch 2.11's wheel for CUDA 13.0, as it says of itself."""

from __future__ import annotations

CUDA_VERSION = "13.0"
COMPILED_VERSION = 13000
CUDNN_VERSION = (9, 19, 0)
NCCL_VERSION = (2, 28, 9)
ARCHITECTURES = "sm_75 sm_80 sm_86 sm_90 sm_100 sm_120"
