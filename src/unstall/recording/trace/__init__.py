"""A recording's folder → a trace file."""
