"""Captures on one stream and on several, and what they ask of a device."""
