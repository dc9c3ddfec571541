"""Inspects CUDA kernels that are written in Numba. Finds a kernel's memory accesses, races and barriers, and models its
time on a GPU."""
