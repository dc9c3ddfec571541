"""A notebook on the virtual GPU, with cells that begin with `%%unstall`; prints facts as JSON."""

import json

from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from traitlets.config import Config

STEPS = "%%unstall\nfor _ in range(5):\n    x.mul_(2).sum().item()\n'the value'"

shell = InteractiveShell.instance(config=Config({"HistoryManager": {"enabled": False}}))


def run(cell: str) -> tuple[object, str, str]:
    """Its value, what was shown below it as text, and stderr."""
    with capture_output() as captured:
        result = shell.run_cell(cell)
    return result.result, "".join(each.data["text/plain"] for each in captured.outputs), captured.stderr


run("%load_ext unstall\nimport unstall\ngpu = unstall.virtual_gpu('h200').start()")
run("import torch\nx = torch.ones(1 << 20, device='cuda')")
told = {"within": run(STEPS), "with options": run(STEPS.replace("%%unstall", "%%unstall --steps 3"))}
run("gpu.stop()")
told["after"] = run(STEPS)
print(json.dumps(told))
