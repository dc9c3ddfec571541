"""Tensors in nested containers, the memory of tensors, and the accelerator that tensors are copied to."""
