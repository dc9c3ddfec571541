"""Where a program hangs: which line's work each stream is at, what it waits for, and where the host is."""
