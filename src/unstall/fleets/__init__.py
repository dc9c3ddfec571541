"""A training job of many ranks, explained as one: which rank makes the others wait, on which line, and what a step
would take without it.
"""
