"""What rounding explains: a function is run again with random errors, and two runs are compared
with what these errors change.
"""
