"""The parts of `stream_map` that handle items and their results, keep statistics, and choose the fastest strategy."""
