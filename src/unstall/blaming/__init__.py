"""Finds the source line that launched the work that failed on the device."""
