"""Which of several functions is faster, and whether they compute the same."""
