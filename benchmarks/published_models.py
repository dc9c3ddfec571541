"""What NVIDIA published of a ResNet-50 on GPUs that are modelled by their data sheets, beside the virtual ones.

python -m benchmarks.published_models

Images per second of PyTorch, from NVIDIA/DeepLearningExamples (PyTorch/Classification/ConvNets/resnet50v1.5/README.md,
container 21.03). Nothing of it was used for the model. The batches of a training are those of its recipe, and mixed
precision has channels last; the smallest batches are left out, as a host that is unknown limits them.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

PUBLISHED: dict[tuple[str, str, str, int], int] = {
    # (GPU, what is run, precision, batch): images per second
    **{
        ("t4", "inference", "float32", batch): rate
        for batch, rate in ((8, 363), (16, 409), (32, 420), (64, 428), (128, 426), (256, 415))
    },
    **{
        ("t4", "inference", "mixed", batch): rate
        for batch, rate in ((16, 1050), (32, 1128), (64, 1165), (128, 1190), (256, 1198))
    },
    ("a100-80g", "training", "tf32", 256): 938,
    ("a100-80g", "training", "mixed", 256): 2470,
}
_PROGRAM = """
import sys
import time

import torch
from torch.nn import functional
from transformers import ResNetConfig, ResNetForImageClassification

mixed, trains, batch = sys.argv[1] == "mixed", sys.argv[2] == "training", int(sys.argv[3])
torch.backends.cuda.matmul.allow_tf32 = True
layout = torch.channels_last if mixed else torch.contiguous_format
model = ResNetForImageClassification(ResNetConfig(num_labels=1000)).cuda().to(memory_format=layout).train(trains)
images = torch.randn(batch, 3, 224, 224, device="cuda").to(memory_format=layout)
labels = torch.zeros(batch, dtype=torch.long, device="cuda")
optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
scaler = torch.amp.GradScaler("cuda", enabled=mixed)

def step():
    with torch.set_grad_enabled(trains), torch.autocast("cuda", torch.float16, enabled=mixed):
        scores = model(images).logits
        if not trains:
            return
        loss = functional.cross_entropy(scores, labels)
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()

for steps in (2, 3):
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(steps):
        step()
    torch.cuda.synchronize()
    took = (time.perf_counter() - began) / steps
print(batch / took)
"""


def main(argv: list[str] | None = None) -> int:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "resnet50.py"
        program.write_text(_PROGRAM, "utf-8")
        print("| GPU | ResNet-50 | batch | published | here | ratio |\n|---|---|--:|--:|--:|--:|")
        for (gpu, what, precision, batch), published in PUBLISHED.items():
            options = ["--gpu", gpu, "--numerics", "skip"]
            command = [sys.executable, "-m", "unstall.virtual", *options, str(program), precision, what, str(batch)]
            ran = subprocess.run(command, check=True, capture_output=True, text=True)
            rate = float(ran.stdout.split()[-1])
            print(f"| {gpu} | {what}, {precision} | {batch} | {published}/s | {rate:.0f}/s | {rate / published:.2f} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
