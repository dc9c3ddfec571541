"""Simulates the shim's log. Computes the times and the memory of the logged work, and answers the program's queries."""
