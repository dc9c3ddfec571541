"""Items of a `stream_map`: their results, statistics and the choice of the fastest strategy."""
