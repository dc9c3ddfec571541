"""A run as columns: the class `Timeline`, functions that compute with its rows, and its file format."""
