"""Runs many programs, each in a process of its own, and tells in a row each what its GPU waits for."""
