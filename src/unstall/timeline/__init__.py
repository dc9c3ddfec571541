"""A run as columns: the class `Timeline`, functions that compute with its rows, and the file in which it is saved."""
