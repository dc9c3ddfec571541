"""An index out of bounds fails on the GPU, and Python is told some lines later.

The ids count from 1, but the rows of a table count from 0: id 1000 is out of bounds. The line that fails ends in
`# fails`.
"""

import re
import traceback
from linecache import getline

import torch

from unstall import blame

table = torch.nn.Embedding(1000, 32).cuda()
ids = torch.arange(1, 1001, device="cuda")
scale = torch.ones(32, device="cuda")


def forward():
    features = table(ids)  # fails
    features = features * scale
    return features.mean().item()


# %% Within `blame`, the error also says whose work failed. Nothing is run again.
try:
    with blame():
        forward()
except RuntimeError as failed:
    error = failed
else:
    raise SystemExit("nothing failed: each id is in the table")

told = traceback.extract_tb(error.__traceback__)[-1]
said = "\n".join([str(error).splitlines()[0], *getattr(error, "__notes__", [])])
named = re.search(r"unstall: .*?:(\d+)", said)
print(said.replace(__file__, __file__.rpartition("/")[2]))
print(f"The traceback says line {told.lineno}   {told.line}")
if named:
    print(f"The wrong index is at line {named[1]}   {getline(__file__, int(named[1])).strip()}")
fails = forward.__code__.co_firstlineno + 1
print(f"lines from the failure to the traceback: {told.lineno - fails}")
print(f"lines from the failure to the line that unstall names: {int(named[1]) - fails if named else 'unknown'}")
