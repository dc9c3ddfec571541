"""Votes are counted for a slot of -1, which stands for nobody."""

import torch

slots = torch.tensor([3, 1, -1, 2, -1], device="cuda")
votes = torch.zeros(8, device="cuda")
votes.scatter_add_(0, slots, torch.ones(5, device="cuda"))  # FAULT
winner = votes.argmax()
share = votes / votes.sum()
print(winner.item(), share)
