"""Starts a program as a child process, in which unstall's code runs before the program's first line (it is armed)."""
