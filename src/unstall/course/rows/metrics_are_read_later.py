"""Row 16."""

from unstall.course.row import Check, Row
from unstall.course.sources import SLIDES

_EACH, _TENTH, _END, _LATER = (
    f"{{}}, read {when}, a step" for when in ("in each step", "in every tenth step", "at the end", "by a metric buffer")
)
_GPU, _TINY, _BOTH = "GPU busy", "host busy, tiny kernels", "both busy"

ROW = Row(
    number=16,
    topic="Waits",
    related=(15, 25),
    question="Does loss.item() in each step slow a training?",
    checks=(
        Check("If the GPU is the slow one, it costs little.", _EACH.format(_GPU), _END.format(_GPU), 0.97, 1.1),
        Check("If kernels are tiny, each wait costs time.", _EACH.format(_TINY), _END.format(_TINY), at_least=1.01),
        Check("If host and GPU are both busy, it costs much.", _EACH.format(_BOTH), _END.format(_BOTH), at_least=1.3),
        Check("Reading every tenth step costs little.", _TENTH.format(_BOTH), _END.format(_BOTH), 0.9, 1.25),
        Check(
            "A MetricBuffer does not make host and GPU take turns.",
            _LATER.format(_BOTH),
            _EACH.format(_BOTH),
            at_most=0.85,
        ),
        Check("Reading the loss in each step waits 20 times.", "waits, read in each step", equal=20),
        Check("Reading ten losses at once waits twice.", "waits, read in every tenth step", equal=2),
        Check("Reading all losses at the end waits once.", "waits, read at the end", equal=1),
        Check("The losses are the same in all loops.", "loops with the losses of the first", equal=12),
    ),
    source=SLIDES,
    learn=(
        ".item() is a barrier: the host and the GPU take turns, so a step takes as long as the work of both, not "
        "only as the longer one. It costs much if both have long work, as with batches prepared on the host: {both "
        "busy, read in each step, a step} a step in place of {both busy, read at the end, a step}. It costs little "
        "if the GPU is the slow one ({GPU busy, read in each step, a step} and {GPU busy, read at the end, a "
        "step}), although a profile then shows the GPU's work in .item(). If kernels are tiny, each .item() costs "
        "a few microseconds to about 20, which counts in a short step ({host busy, tiny kernels, read in each "
        "step, a step} and {host busy, tiny kernels, read at the end, a step}).\n"
        "So for logging (TensorBoard, a progress bar) keep loss.detach() (25) in a list, and read it every ten or "
        "hundred steps: you see a NaN that much later. A MetricBuffer gives each number some steps late without a "
        "wait. Its own code takes the host's time, though, which a virtual GPU leaves out: on a real one it may "
        "take longer than .item() if kernels are tiny, so use it if steps are long."
    ),
    mine=(
        "`unstall run train.py` names each .item() with its gain: what a step saves without that wait. With the "
        'verdict "Device-bound" that gain is small, and with "Launch-bound" some microseconds; it is large if '
        "both work long. A trace of torch.profiler will do, too: `unstall explain trace.json`."
    ),
    change=(
        "`metrics.add(loss=loss)` within `with unstall.MetricBuffer(print) as metrics:`, or by hand:\n"
        "values, kept = [], []\n"
        "for number, batch in enumerate(loader, 1):\n"
        "    kept.append(train(batch).detach())\n"
        "    if number % 100 == 0:\n"
        "        values += torch.stack(kept).tolist()\n"
        "        kept.clear()"
    ),
    searched="tqdm wandb print",
    numerics="real",
    finding="sync-item",
)
