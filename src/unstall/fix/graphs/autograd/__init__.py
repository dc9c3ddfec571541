"""A CUDA graph's forward and backward as an autograd node, and access to the autograd nodes that tensors depend on."""
