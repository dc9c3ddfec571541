"""The C++ part of the virtual GPU, which records what a program asks of its GPU. Compiled once, loaded before torch."""
