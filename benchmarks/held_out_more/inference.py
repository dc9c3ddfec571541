"""Programs that train nothing: they evaluate, detect, translate and search, and read what they find."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.held_out import Step
from benchmarks.held_out_more.vision import resnet


def confusions() -> Step:
    """An evaluation in float16: a DataLoader that pins its batches, top-5 accuracy, and a confusion matrix on the CPU.

    One step is one evaluation of 250 images; the last batch is smaller.
    """
    model = resnet(50).cuda().half().eval()
    data = TensorDataset(torch.randn(250, 3, 96, 96), torch.randint(0, 50, (250,)))
    batches = DataLoader(data, batch_size=64, num_workers=0, pin_memory=True)

    @torch.inference_mode()
    def step() -> tuple[float, float, Tensor]:
        lost, right, matrix = 0.0, 0.0, torch.zeros(50, 50, dtype=torch.long)
        for images, labels in batches:
            x, y = images.to("cuda", torch.float16, non_blocking=True), labels.to("cuda", non_blocking=True)
            scores = model(x).float()
            lost += functional.cross_entropy(scores, y).item() * len(y)
            right += (scores.topk(5, dim=1).indices == y[:, None]).any(1).sum().item()
            guessed = scores.argmax(1).cpu()
            for true, guess in zip(labels, guessed, strict=True):
                matrix[true, guess] += 1
        return lost / len(data), right / len(data), matrix

    return step


def _anchors(side: int, stride: int) -> Tensor:
    """Returns three boxes around each pixel of a map, as corners, on the CPU."""
    middle = (torch.arange(side) + 0.5) * stride
    y, x = torch.meshgrid(middle, middle, indexing="ij")
    boxes = []
    for ratio in (0.5, 1.0, 2.0):
        height, width = 4 * stride * math.sqrt(ratio), 4 * stride / math.sqrt(ratio)
        boxes.append(torch.stack([x - width / 2, y - height / 2, x + width / 2, y + height / 2], -1))
    return torch.stack(boxes, 2).view(-1, 4)


def _decoded(anchors: Tensor, moves: Tensor) -> Tensor:
    sizes = anchors[:, 2:] - anchors[:, :2]
    middles = anchors[:, :2] + sizes / 2 + moves[:, :2] * sizes
    sizes = sizes * torch.exp(moves[:, 2:].clamp(max=math.log(1000 / 16)))
    return torch.cat([middles - sizes / 2, middles + sizes / 2], 1).clamp(0, 256)


def _suppressed(boxes: Tensor, scores: Tensor, limit: float, most: int) -> Tensor:
    """Non-maximum suppression, box by box."""
    areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    order: Tensor = scores.argsort(descending=True)
    kept: list[Tensor] = []
    while order.numel() > 0 and len(kept) < most:
        best, order = order[0], order[1:]
        kept.append(best)
        corner = torch.maximum(boxes[best, :2], boxes[order, :2])
        other = torch.minimum(boxes[best, 2:], boxes[order, 2:])
        common = (other - corner).clamp(min=0).prod(1)
        order = order[common / (areas[best] + areas[order] - common) <= limit]
    return torch.stack(kept)


def detects() -> Step:
    """RetinaNet: a small pyramid of features, boxes decoded from anchors, and suppression class by class."""

    def layer(into: int, out: int) -> nn.Sequential:
        return nn.Sequential(nn.Conv2d(into, out, 3, 2, 1, bias=False), nn.BatchNorm2d(out), nn.ReLU(True))

    stem = nn.Sequential(layer(3, 16), layer(16, 32))
    levels = nn.ModuleList([layer(32, 64), layer(64, 128), layer(128, 128)])
    beside = nn.ModuleList([nn.Conv2d(width, 64, 1) for width in (64, 128, 128)])
    heads = [
        nn.Sequential(nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 3 * out, 3, padding=1))
        for out in (20, 4)
    ]
    nn.ModuleList([stem, levels, beside, *heads]).cuda().eval()
    anchors = [_anchors(256 // stride, stride).cuda() for stride in (8, 16, 32)]
    images = torch.rand(2, 3, 256, 256)

    @torch.no_grad()
    def step() -> list[dict[str, Tensor]]:
        x, maps = stem(images.cuda()), []
        for level in levels:
            x = level(x)
            maps.append(x)
        features = [less(each) for less, each in zip(beside, maps, strict=True)]
        for at in (1, 0):
            features[at] = features[at] + functional.interpolate(features[at + 1], scale_factor=2, mode="nearest")
        classes, moves = ([head(each).permute(0, 2, 3, 1) for each in features] for head in heads)
        found = []
        for image in range(len(images)):
            boxes, scores, names = [], [], []
            for anchor, its, move in zip(anchors, classes, moves, strict=True):
                score, at = its[image].reshape(-1).sigmoid().topk(200)
                box, name = at // 20, at % 20
                boxes.append(_decoded(anchor[box], move[image].reshape(-1, 4)[box]))
                scores.append(score)
                names.append(name)
            box, score, name = torch.cat(boxes), torch.cat(scores), torch.cat(names)
            kept = _suppressed(box + name[:, None] * 257.0, score, 0.5, 40)
            found.append({"boxes": box[kept].cpu(), "scores": score[kept].cpu(), "labels": name[kept].cpu()})
        return found

    return step


def beams() -> Step:
    """Beam search with torch's Transformer, without a cache: four beams for each of four sentences."""
    model = nn.Transformer(128, 4, 2, 2, 512, dropout=0.1, batch_first=True)
    table, places, head = nn.Embedding(2000, 128), nn.Embedding(64, 128), nn.Linear(128, 2000)
    nn.ModuleList([model, table, places, head]).cuda().eval()
    source = torch.randint(3, 2000, (4, 20)).cuda()

    def embedded(words: Tensor) -> Tensor:
        found: Tensor = table(words) * math.sqrt(128) + places(torch.arange(words.shape[1], device=words.device))
        return found

    @torch.no_grad()
    def step() -> list[list[int]]:
        memory = model.encoder(embedded(source)).repeat_interleave(4, dim=0)
        texts = torch.full((16, 1), 1, dtype=torch.long, device="cuda")
        totals = torch.tensor([0.0, -1e9, -1e9, -1e9], device="cuda").repeat(4)
        ended = torch.zeros(16, dtype=torch.bool, device="cuda")
        for _ in range(12):
            future = nn.Transformer.generate_square_subsequent_mask(texts.shape[1], device=torch.device("cuda"))
            logs = head(model.decoder(embedded(texts), memory, tgt_mask=future)[:, -1]).log_softmax(-1)
            logs[ended] = -math.inf
            logs[ended, 2] = 0.0
            totals, best = (totals[:, None] + logs).view(4, -1).topk(4, dim=1)
            totals, rows = totals.view(-1), (best // 2000 + torch.arange(4, device="cuda")[:, None] * 4).view(-1)
            texts = torch.cat([texts[rows], (best % 2000).view(-1, 1)], dim=1)
            ended = ended[rows] | (texts[:, -1] == 2)
            if ended.all():
                break
        winners = (totals / texts.ne(2).sum(1) ** 0.6).view(4, 4).argmax(1)
        found: list[list[int]] = texts.view(4, 4, -1)[torch.arange(4, device="cuda"), winners].tolist()
        return found

    return step


def retrieves() -> Step:
    """Embeds 128 queries of many lengths in four batches, and searches 200,000 passages for the ten nearest.

    torch's TransformerEncoder takes its fast path: it is in evaluation, and there is padding.
    """
    layer = nn.TransformerEncoderLayer(384, 12, 1536, activation="gelu", batch_first=True)
    encoder, table = nn.TransformerEncoder(layer, 6), nn.Embedding(30_000, 384, padding_idx=0)
    nn.ModuleList([encoder, table]).cuda().half().eval()
    passages = functional.normalize(torch.randn(200_000, 384), dim=1).half().cuda()
    queries = [torch.randint(1, 30_000, (int(length),)) for length in torch.randint(5, 65, (128,))]
    queries.sort(key=len, reverse=True)

    @torch.inference_mode()
    def step() -> list[list[int]]:
        found: list[list[int]] = []
        for begin in range(0, len(queries), 32):
            words = nn.utils.rnn.pad_sequence(queries[begin : begin + 32], batch_first=True).to("cuda")
            padding = words == 0
            states = encoder(table(words), src_key_padding_mask=padding)
            kept = (~padding).unsqueeze(-1).to(states.dtype)
            vectors = functional.normalize((states * kept).sum(1) / kept.sum(1), dim=1)
            scores, nearest = (vectors @ passages.T).topk(10, dim=1)
            found += nearest[scores[:, 0].argsort(descending=True)].cpu().tolist()
        return found

    return step


INFERENCE: dict[str, Callable[[], Step]] = {
    "confusions": confusions,
    "detects": detects,
    "beams": beams,
    "retrieves": retrieves,
}
