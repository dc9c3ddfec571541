"""Starts a program as a child process that is armed before its first line."""
