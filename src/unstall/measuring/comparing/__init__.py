"""Compares functions: finds the fastest function, and finds out whether the results of the functions agree."""
