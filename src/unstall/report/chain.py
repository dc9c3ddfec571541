"""The report of `show --chain`: the calls from a line to the work that it puts on a device, link by link."""

from __future__ import annotations

from unstall.diagnose.chain import Chain, Chains, Link
from unstall.document.document import Block, Column, Document, Prose, Role, Row, Span, Table, words
from unstall.document.plain import short
from unstall.figures import counted, duration, size

_MOST_CHAINS = 3
_WIDTH = 58  # columns beside the figures
_SHORTEST_NAME = 24
_ROLES: dict[str, Role] = {"line": "place", "frame": "place", "device": "strong"}
_MEANING = (
    "takes: with all that it calls; own: without it. Names of files are those of PyTorch's source, for operators that "
    "were looked up there."
)


def document(found: Chains) -> Document:
    """Returns the report of `unstall show --chain`: for one source line, the chains of calls that
    lead from it to a device.
    """
    shown = found.chains[:_MOST_CHAINS]
    blocks: list[Block] = [_table(chain) for chain in shown]
    left = len(found.chains) - len(shown)
    if left > 0:
        blocks.append(Prose((words(Span(f"{counted(left, 'other chain')} take less time: --json has all.", "dim")),)))
    blocks.append(Prose((words(_MEANING),), small=True))
    about = words(Span(found.path, "subject")), words(Span("calls of ", "dim"), Span(found.at, "place"))
    return Document(title="unstall", about=about, blocks=tuple(blocks), data=found)


def _table(chain: Chain) -> Table:
    often = f"{chain.count:,}x, the median one" if chain.count > 1 else "once"
    backward = ", in the backward pass of its operators" if chain.backward else ""
    columns = Column("takes"), Column("own")
    return Table(words(f"{often}{backward}"), columns, tuple(map(_row, chain.links)))


def _row(link: Link) -> Row:
    before = f"{'  ' * (link.depth - 1)}└ " if link.depth else ""
    name = Span(short(link.name, max(_WIDTH - len(before), _SHORTEST_NAME)), _ROLES.get(link.kind, "name"))
    figures = ("" if each is None else duration(each) for each in (link.takes_ns, link.own_ns))
    below = [*link.files, _device(link), f"and {link.left_out:,} more" if link.left_out else ""]
    lines = tuple(words("  " * (link.depth - 1), Span(text, "dim")) for text in below if text)
    return Row(words(before, name), tuple(figures), lines)


def _device(link: Link) -> str:
    if link.kind != "device":
        return ""
    moved = "" if link.bytes is None else f"{size(link.bytes)}, "
    return f"{moved}stream {link.stream}, {duration(link.after_ns or 0)} after the call began"
