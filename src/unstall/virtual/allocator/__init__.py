"""PyTorch's caching allocator as a model: which segments and blocks a sequence of requests makes."""
