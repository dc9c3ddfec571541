"""Explains a training job of many ranks as one: which rank makes the others wait, at which source line, and how long a
step would take without this rank's delay."""
