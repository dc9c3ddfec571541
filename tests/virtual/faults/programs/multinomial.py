"""Sampling from logits that are all masked away: softmax gives NaN."""

import torch


def sample(logits):
    return torch.multinomial(logits.softmax(-1), 1)  # FAULT


logits = torch.randn(3, 12, device="cuda")
logits[1] = float("-inf")
token = sample(logits)
tokens = torch.cat([token, token + 1], 1)
print(tokens.cpu())
