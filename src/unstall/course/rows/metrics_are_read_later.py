"""Row 16."""

from unstall.course.row import Check, Row

ROW = Row(
    number=16,
    topic="Waits",
    related=(15, 25),
    question='"Save metrics to a list of tensors and reduce later": does that collect them without a barrier?',
    checks=(
        Check("Reading the loss in each step waits 20 times.", "waits, read in each step", equal=20),
        Check("Reading all losses at the end waits once.", "waits, read at the end", equal=1),
        Check(
            "In the loop, a MetricBuffer waits for less than a twentieth of the time.",
            "waited in the loop, read some steps later",
            "20 steps, read some steps later",
            at_most=0.05,
        ),
        Check("The losses are the same.", "loops with the losses of the first", equal=3),
        Check(
            "A loop that waits in each step is slower.",
            "20 steps, read in each step",
            "20 steps, read at the end",
            at_least=1.01,
        ),
    ),
    learn=(
        "Yes, so take the list: it is read with one wait at the end, but until then you see no number and no NaN; "
        "detach() each loss (25). It gains little: .item() waits until the GPU has done its work, so a profile shows "
        "that work in it, and you save only what the host could have launched meanwhile. If you need numbers during "
        "training, read .item() every hundred steps, or use a MetricBuffer if steps are long: it gives numbers some "
        "steps late, and costs the host time in each step. On the H100, this loop takes about as long with it as with "
        ".item() in each step."
    ),
    change=(
        "`kept.append(loss.detach())` in the loop, `torch.stack(kept).tolist()` after it; or `metrics.add(loss=loss)` "
        "within `with unstall.MetricBuffer(print) as metrics:`."
    ),
    numerics="real",
    finding="sync-item",
)
