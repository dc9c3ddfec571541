"""Benchmarks that measure asynchronous work correctly: `bench`, `compare`, `Timer`, `Stopwatch`."""
