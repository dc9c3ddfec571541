import torch
from torch import nn

embedding = nn.Embedding(1000, 64).cuda()
head = nn.Linear(64, 1000).cuda()
tokens = torch.zeros(32, dtype=torch.long, device="cuda")


def model(tokens):
    hidden = embedding(tokens)  # the fault
    hidden = torch.relu(hidden)
    return head(hidden).argmax(-1)


with torch.no_grad():
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        model(tokens)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        following = model(tokens)
    for step in range(50):
        tokens.copy_(following if step != 37 else following + 1000)
        graph.replay()
print(following.tolist()[:4])
