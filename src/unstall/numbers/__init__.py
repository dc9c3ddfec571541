"""Finds where two ways of running a function give different numbers, apart from rounding."""
