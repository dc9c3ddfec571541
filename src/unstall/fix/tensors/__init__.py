"""Tensors in nests, their memory, and the accelerator that they are copied to."""
