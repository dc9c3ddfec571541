"""Finds where a program hangs: the work that each stream is executing or waiting for, and the line that the host is
executing.
"""
