"""A model of PyTorch's caching allocator: computes the segments and blocks of a sequence of requests."""
