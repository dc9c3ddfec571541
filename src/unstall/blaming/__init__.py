"""Names the line whose work on the device failed."""
