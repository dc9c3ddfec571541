"""Records which source line each thread runs: read from frames at calls, or followed by the line clock."""
