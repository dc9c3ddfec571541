"""Tensors in nested containers, their memory, and the accelerator that they are copied to."""
