"""Operations that do not wait, each called before, so that the allocator has its memory."""

import torch
from telling import counted, show
from torch.nn import functional as fn

x = torch.randn(64, 64, device="cuda")
ids = torch.arange(64, device="cuda")
mask = x > 0
images = torch.randn(2, 3, 16, 16, device="cuda")
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64)).cuda()
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
plain_sgd = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
attention = torch.randn(2, 4, 16, 32, device="cuda")
pinned = torch.randn(1024, 1024).pin_memory()
target = torch.empty(1024, 1024, device="cuda")
small = torch.randn(100)
stream = torch.cuda.Stream()
event = torch.cuda.Event(enable_timing=True)


def train(chosen):
    chosen.zero_grad()
    model(x).square().mean().backward()
    chosen.step()


def beside():
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        x.square()
    torch.cuda.current_stream().wait_stream(stream)


OPERATIONS = {
    "add": lambda: x + x,
    "in place": lambda: x.mul_(1.0),
    "with a number of the host": lambda: x * torch.tensor(3.0),
    "matmul": lambda: x @ x,
    "linear": lambda: model(x),
    "convolution": lambda: fn.conv2d(images, torch.randn(4, 3, 3, 3, device="cuda")),
    "sum": lambda: x.sum(),
    "max": lambda: x.max(dim=1),
    "softmax": lambda: x.softmax(dim=-1),
    "layer norm": lambda: fn.layer_norm(x, (64,)),
    "attention": lambda: fn.scaled_dot_product_attention(attention, attention, attention),
    "embedding": lambda: fn.embedding(ids, x),
    "cross entropy": lambda: fn.cross_entropy(x, ids),
    "dropout": lambda: fn.dropout(x, 0.5),
    "sort": lambda: x.sort(),
    "topk": lambda: x.topk(4),
    "cumsum": lambda: x.cumsum(0),
    "gather": lambda: x.gather(0, ids.expand(64, 64)),
    "indices": lambda: x[ids],
    "a slice": lambda: x[3:7, ::2],
    "where": lambda: torch.where(mask, x, 0),
    "masked_fill": lambda: x.masked_fill(mask, 0),
    "a number where a mask is": lambda: x.__setitem__(mask, 0.0),
    "concatenate": lambda: torch.cat([x, x]),
    "views": lambda: x.t().reshape(-1).view(64, 64).expand(2, 64, 64),
    "clone": lambda: x.clone(),
    "to another dtype": lambda: x.to(torch.bfloat16),
    "made on the device": lambda: (torch.zeros(64, device="cuda"), torch.full((64,), 3.0, device="cuda")),
    "arange": lambda: torch.arange(64, device="cuda"),
    "random numbers": lambda: torch.randn(64, device="cuda"),
    "multinomial": lambda: torch.ones(8, device="cuda").multinomial(4, replacement=True),
    "repeat_interleave by a number": lambda: x.repeat_interleave(2, dim=0),
    "shapes": lambda: (x.shape, x.numel(), x.is_contiguous(), x.dtype, x.device, x.stride(), x.data_ptr()),
    "a pinned upload": lambda: target.copy_(pinned, non_blocking=True),
    "a pinned download": lambda: pinned.copy_(target, non_blocking=True),
    "a small pageable upload": lambda: small.to("cuda", non_blocking=True),
    "a download that torch pins": lambda: x.to("cpu", non_blocking=True),
    "events": lambda: (event.record(), event.query(), torch.cuda.current_stream().wait_event(event)),
    "streams": beside,
    "stream.query": lambda: stream.query(),
    "clip_grad_norm_": lambda: torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0),
    "a step of fused AdamW": lambda: train(optimizer),
    "a step of SGD": lambda: train(plain_sgd),
    "memory_allocated": lambda: (torch.cuda.memory_allocated(), torch.cuda.memory_stats(), torch.cuda.mem_get_info()),
    "manual_seed": lambda: torch.cuda.manual_seed(3),
    "work on the host": lambda: (small.sum().item(), small.tolist(), small.numpy(), bool(small[0] > 0)),
}

for operation in OPERATIONS.values():
    operation()
show(**{name: counted(operation) for name, operation in OPERATIONS.items()})
