"""Makes a trace file from the folder of a recording."""
