"""Finds where two ways of running a function (for example on two devices) give numbers that differ
by more than rounding.
"""
