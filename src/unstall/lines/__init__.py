"""Which line of the source runs: read off frames, or followed by a clock; and what its numbers stand for."""
