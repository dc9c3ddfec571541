"""The user's source, as far as it may be read, and patches of it for what was found."""
