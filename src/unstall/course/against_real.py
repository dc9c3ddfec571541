"""Compares the recorded figures of a virtual H200 with those of a real one."""

from __future__ import annotations

from collections.abc import Iterator

from unstall.course.recorded import heading, recorded
from unstall.course.row import Row

REAL = heading("h200", virtual=False)
MODELLED = heading("h200", virtual=True)


def reasons(row: Row) -> dict[str, list[str]]:
    """Maps each reason why a virtual H200 and a real one give different figures of an experiment to their labels."""
    found: dict[str, list[str]] = {}
    for label, why in row.differs.items():
        found.setdefault(why or "it is not known why", []).append(label)
    return found


def differences(name: str, row: Row) -> Iterator[str]:
    """Yields a sentence for each of the reasons, with the figures.

    Args:
        name: The name of the experiment.
        row: The experiment.
    """
    modelled, real = (recorded()[gpu].figures[name] for gpu in (MODELLED, REAL))
    for why, labels in reasons(row).items():
        yield f"{why}: {'; '.join(f'{each} {modelled[each]}, and {real[each]} on a real one' for each in labels)}"
