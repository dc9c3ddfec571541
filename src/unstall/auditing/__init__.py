"""Runs many programs, each in its own process, and makes a table. The row of a program says what
the GPU waits for while the program runs.
"""
