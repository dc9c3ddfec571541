"""The shim: the C++ part of the virtual GPU. The shim records what a program requests from the program's GPU. The shim
is compiled once, and loaded before torch.
"""
