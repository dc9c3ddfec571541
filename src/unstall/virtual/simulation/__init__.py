"""Simulates what the shim's log says the program asked of its GPU: finds the times and the memory,
and answers the program's questions about them.
"""
