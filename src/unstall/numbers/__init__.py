"""Where two ways to run a function part by more than the arithmetic explains."""
