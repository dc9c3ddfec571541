"""A CUDA graph's forward and backward as an autograd node, and access to the nodes behind tensors."""
