"""The C++ part of the virtual GPU. It records what a program requests from its GPU. It is compiled once, and loaded
before torch.
"""
