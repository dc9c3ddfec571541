"""The virtual GPU's part in C++, which records what a program asks of its GPU: compiled once, loaded before torch."""
