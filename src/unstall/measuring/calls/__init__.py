"""The measured function, and the inspection of one call of this function."""
