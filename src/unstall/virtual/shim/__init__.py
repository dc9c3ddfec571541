"""The shim: the C++ part of the virtual GPU, which records what a program asks of its GPU. It is
compiled once, and loaded into a process before torch.
"""
