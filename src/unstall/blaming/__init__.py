"""Finds the source line whose work failed on the device."""
