"""Computes how much the rounding errors of each operator change the results of a program."""
