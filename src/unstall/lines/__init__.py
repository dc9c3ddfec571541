"""Records which source line each thread runs. Reads frames at calls, or follows threads with the line clock."""
