API: object
"""The table of `_pointers.h`, as a capsule."""
