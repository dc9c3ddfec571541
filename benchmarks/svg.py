"""What the pictures of figures share: themes, lines and texts, as SVG."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
LETTER = 6.6  # width of one at 12 px, on average


@dataclass(frozen=True)
class Theme:
    paper: str
    ink: str
    faint_ink: str
    grid: str
    band: str
    diagonal: str
    hues: tuple[str, ...]


# Hues that remain apart for colour-blind readers; each 3:1 or more against its paper.
LIGHT = Theme(
    paper="#ffffff",
    ink="#1f2328",
    faint_ink="#59636e",
    grid="#e6e9ed",
    band="#eef4fb",
    diagonal="#8c959f",
    hues=("#0b6bcb", "#c2570c", "#16806a", "#8250df", "#b3246b", "#3d444d"),
)
DARK = Theme(
    paper="#0d1117",
    ink="#e6edf3",
    faint_ink="#9198a1",
    grid="#21262d",
    band="#151f2d",
    diagonal="#656c76",
    hues=("#58a6ff", "#f0883e", "#3fb99b", "#b792f5", "#f778ba", "#d1d7e0"),
)


def opening(width: int, height: int, title: str, about: str, theme: Theme) -> list[str]:
    """Returns the first elements of a picture, with its title and its description for screen
    readers.
    """
    return [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'role="img" aria-labelledby="title about" font-family="{escape(FONT)}" font-size="12">',
        f'<title id="title">{escape(title)}</title><desc id="about">{escape(about)}</desc>',
        f'<rect width="{width}" height="{height}" fill="{theme.paper}"/>',
    ]


def line(x1: float, y1: float, x2: float, y2: float, colour: str, *, dash: str = "", opacity: float = 1) -> str:
    more = (f' stroke-dasharray="{dash}"' if dash else "") + (f' stroke-opacity="{opacity}"' if opacity < 1 else "")
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"{more}/>'


def text(x: float, y: float, words: str, colour: str, *, anchor: str = "", size: int = 0, weight: int = 0) -> str:
    more = f' text-anchor="{anchor}"' if anchor else ""
    more += f' font-size="{size}"' if size else ""
    more += f' font-weight="{weight}"' if weight else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}"{more}>{escape(words)}</text>'
