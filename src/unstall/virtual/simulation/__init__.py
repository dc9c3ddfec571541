"""Simulates the shim's log: computes times and memory, and answers the program."""
