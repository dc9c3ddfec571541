"""Finds where two ways of running a function differ by more than rounding explains."""
