"""Patches of the user's source files that mend what a finding reports. Reads a source file only if
the user allowed it.
"""
