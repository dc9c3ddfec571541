"""Each of two devices fails; the error of the second ends the program."""

import torch

for device in ("cuda:0", "cuda:1"):
    table = torch.ones(4, 2, device=device)
    rows = table.index_select(0, torch.tensor([4 + int(device[-1])], device=device))  # FAULT
    if device == "cuda:0":
        try:
            torch.cuda.synchronize(device)
        except RuntimeError:
            print("the other one")
torch.cuda.synchronize("cuda:1")
