"""Measures how long the device works for a call, by three methods."""
