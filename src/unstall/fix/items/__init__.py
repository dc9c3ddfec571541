"""Items that are mapped: their results, and which way is the fastest."""
