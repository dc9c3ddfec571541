"""What a call touches, reads and waits for, and whether that is as it was."""
