import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.words = torch.nn.Embedding(10, 4)

    def forward(self, x):
        return self.words(x)


model = Model().cuda()
tokens = torch.tensor([3, 12]).cuda()
loss = model(tokens).sum()
print("launched")
print(loss.item())
