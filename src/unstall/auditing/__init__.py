"""Runs many programs, each in its own process, and makes a table. The row of a program says what its GPU waits for."""
