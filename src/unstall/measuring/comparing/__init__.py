"""Compares functions: which is the fastest, and whether their results agree."""
