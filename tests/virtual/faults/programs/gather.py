"""Log-probabilities of tokens are gathered by ids of another vocabulary."""

import torch


def chosen(logits, ids):
    scores = logits.log_softmax(-1)
    return scores.gather(-1, ids.unsqueeze(-1)).squeeze(-1)  # FAULT


logits = torch.randn(2, 6, 50, device="cuda")
ids = torch.randint(0, 50, (2, 6))
ids[1, 4] = 63
scores = chosen(logits, ids.to("cuda"))
mean = scores.mean()
total = mean + logits.sum()
print(total.item())
