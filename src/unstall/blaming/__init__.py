"""Finds the source line that launched the device work that failed."""
