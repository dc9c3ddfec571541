"""A model of PyTorch's caching allocator. It computes the segments and blocks for a sequence of requests."""
