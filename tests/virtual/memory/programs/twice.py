"""Work on two streams, with a backward pass and values that are read."""

import torch

layer = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 8)).cuda()
optimizer = torch.optim.Adam(layer.parameters())
other = torch.cuda.Stream()
x = torch.randn(32, 64).pin_memory()
for _ in range(3):
    on_gpu = x.to("cuda", non_blocking=True)
    other.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(other):
        norm = on_gpu.square().sum()
    loss = layer(on_gpu).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    torch.cuda.current_stream().wait_stream(other)
    print(loss.item() >= 0, norm.item() > 0)
