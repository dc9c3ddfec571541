"""The function under measurement, and what one call of it shows."""
