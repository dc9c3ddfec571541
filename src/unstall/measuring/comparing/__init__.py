"""Compares functions: finds the fastest, and whether they compute the same."""
