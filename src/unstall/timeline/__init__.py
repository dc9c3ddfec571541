"""A run as columns: `Timeline`, the algebra of its rows, and its file."""
