"""Captures on one stream and on several, and the device interface that they need."""
