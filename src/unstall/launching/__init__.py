"""Starts a program as a child process. The child process is armed: code of unstall runs in it before the program's
first line."""
