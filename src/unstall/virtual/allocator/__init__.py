"""A model of PyTorch's CUDA caching allocator, without memory: it works out which block each request gets."""
