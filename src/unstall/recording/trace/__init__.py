"""Makes a trace file of a recording's folder."""
