"""Benchmarks that cannot be fooled by asynchrony: `bench`, `compare`, `Timer`, `Stopwatch`."""
