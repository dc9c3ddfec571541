"""A graph's forward and backward as a node of autograd's, and the nodes behind tensors."""
