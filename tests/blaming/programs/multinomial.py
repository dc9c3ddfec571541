import torch

logits = torch.randn(8, 32000, device="cuda")
ballast = torch.randn(4096, 4096, device="cuda")
tokens = []
for position in range(16):
    temperature = torch.tensor(1.0 if position != 11 else 0.0, device="cuda")
    for _ in range(3):
        ballast = ballast @ ballast / 64
    probabilities = torch.softmax(logits * (0.0 / temperature + 1.0), dim=-1)
    token = torch.multinomial(probabilities, 1)  # the fault
    logits = logits.roll(1, dims=-1)
    tokens.append(token)
print(torch.cat(tokens, dim=1).tolist())
