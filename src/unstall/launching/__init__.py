"""Starts a program in a child process that is armed: code of unstall runs in the child process before the program's
first line."""
