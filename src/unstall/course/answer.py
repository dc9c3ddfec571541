"""`Studied`: the results of experiments of the course, with methods to show and save them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from unstall.course.against_author import Against, against_author
from unstall.course.against_real import REAL, differences
from unstall.course.recorded import heading, recorded
from unstall.course.result import Checked, Course, Experiment
from unstall.course.table import table
from unstall.document.document import (
    Annotation,
    Block,
    Bullets,
    Code,
    Column,
    Document,
    Prose,
    Role,
    Row,
    Span,
    Table,
    Words,
    words,
)
from unstall.document.shown import Shown
from unstall.figures import counted

_SCALED = (
    "The host's own work, such as NumPy's, was measured on this machine, and scaled to the modelled host. Other "
    "programs that run meanwhile make it longer."
)
_VERDICTS: Final[dict[bool | None, tuple[str, Role]]] = {
    True: ("holds", "good"),
    False: ("does not hold", "bad"),
    None: ("not checked", "warning"),
}
_BEGIN = (
    "Experiments of asynchronous execution. Begin with 1, 4, 13 and 15, then go on with the topic that your question "
    "is about."
)
WORDS = (
    "The host is the CPU with the Python program. A kernel is a program of the GPU, and to launch one is to put it "
    "into a stream: a queue whose order the GPU keeps. If a queue is full, launches wait (back-pressure). Ordinary "
    "memory of the host is pageable: the system may move it. Pinned memory stays where it is, so the GPU can copy it "
    "by itself."
)
"""The words that the experiments take for known."""
_RUN = "unstall course NAME runs one; its number will do. Times are those of runs on a virtual T4."
_SEARCH = "`all` runs all. Words, as in `unstall course leak`, or a whole question, list those about them."
_NEXT = (
    ("unstall course {word} --show", "the script"),
    ("unstall course {word} --copy FOLDER", "the script and a notebook, to change"),
    ("unstall course {word} --explain", "let unstall explain it"),
)


@dataclass(frozen=True, repr=False, slots=True)
class Studied(Shown):
    """The results of experiments of the course: the scripts' output, their figures beside the
    authors', and which checks hold. `print` shows them. `save` writes them to a file.
    """

    experiments: Sequence[Experiment]

    @property
    def holds(self) -> bool:
        """Whether all scripts ran, and all checks of their figures hold."""
        return all(experiment.holds for experiment in self.experiments)

    def document(self, *, scrub_paths: bool = False) -> Document:
        """Returns the results as a document. If `scrub_paths` is set, file paths are shortened."""
        return Document(
            title="unstall course",
            about=(),
            summary=_summary(self.experiments) if len(self.experiments) > 1 else "",
            blocks=(
                *(block for experiment in self.experiments for block in _blocks(experiment)),
                *self._ending(),
                *_why_not(self.experiments),
            ),
            data=Course(experiments=tuple(self.experiments)),
            annotations=tuple(note for experiment in self.experiments for note in _annotations(experiment)),
        )

    def _ending(self) -> tuple[Block, ...]:
        one = self.experiments[0] if len(self.experiments) == 1 else None
        word = str(one.number) if one else "NAME"
        row = table()[one.name] if one else None
        after = [(line, f"then: {about}") for line, about in row.then] if row else []
        after += [(f"unstall course {other}", _name(other)) for other in row.related] if row else []
        own = [] if one and one.changed else _NEXT  # these would be about the script as it was
        lines = [(line.format(word=word), about) for line, about in own] + after
        return (Code(words("next"), tuple(f"{line:34}  # {about}" for line, about in lines), language="sh"),)


def _name(number: int) -> str:
    return next(name for name, row in table().items() if row.number == number)


@dataclass(frozen=True, repr=False, slots=True)
class Listed(Shown):
    """A list of experiments of the course. `print` shows it. `save` writes it to a file.

    Attributes:
        names: The names of the experiments, in order.
        words: The words that these experiments are about; "" for the list of all.
    """

    names: Sequence[str]
    words: str = ""

    def document(self, *, scrub_paths: bool = False) -> Document:
        """Returns the list as a document: the number, the name and the question of each experiment."""
        rows = {name: table()[name] for name in self.names}
        said = _RUN if self.words else f"{_RUN} {_SEARCH}"
        return Document(
            title="unstall course",
            about=(words(f"Experiments about {self.words}:" if self.words else _BEGIN),),
            blocks=(*self._tables(), *(() if self.words else (Prose((words(WORDS),)),)), Prose((words(said),))),
            data={
                "schema": "unstall.course.table/1",
                "rows": [{"number": row.number, "name": name, "question": row.question} for name, row in rows.items()],
            },
        )

    def _tables(self) -> Iterator[Table]:
        """Yields a table for each topic; or one table, in the order of the names, if words were looked for."""
        if self.words:
            yield Table((), (), tuple(map(_listed, self.names)), compact=True)
            return
        topics: dict[str, list[str]] = {}
        for name in self.names:
            topics.setdefault(table()[name].topic, []).append(name)
        for topic, mine in topics.items():
            yield Table(words(Span(topic, "strong")), (), tuple(map(_listed, mine)), compact=True)


def _listed(name: str) -> Row:
    row, taken = table()[name], recorded().get(heading("t4", virtual=True))
    seconds = f"  {taken.seconds[name]:.0f} s" if taken and name in taken.seconds else ""
    title = words(f"{row.number:2}  ", Span(name, "subject"), Span(seconds, "dim"))
    return Row(title, (), (words(row.question),))


def _summary(experiments: Sequence[Experiment]) -> str:
    holding = sum(experiment.holds for experiment in experiments)
    return f"{holding} of {counted(len(experiments), 'experiment')} show what they should."


def _blocks(experiment: Experiment) -> Iterator[Block]:
    copy = " (a changed copy)" if experiment.changed else ""
    yield Prose((words(Span(f"{experiment.number}. {experiment.question}{copy}", "strong")),))
    if experiment.failure:
        lines = experiment.said.splitlines()
        own = f'  File "{experiment.name}.py"'  # frames before it are of what started the script
        first = next((number for number, line in enumerate(lines) if line.startswith(own)), 0)
        yield Code(words(Span(experiment.failure, "bad")), tuple(lines[first:][-20:]), language="text")
    else:
        lesson, *more = experiment.learn.split("\n")
        yield Prose((words(Span("What to learn:", "strong"), f" {lesson}"), *map(words, more)))
    if experiment.figures:
        yield _figures(experiment)
        if experiment.host == "mixed":
            yield Prose((words(_SCALED),))
        missed = tuple(map(_missed, _missed_of(experiment)))
        if missed:
            yield Bullets(words("Where this virtual GPU is not as the author's GPU"), missed)
        differing = tuple(map(words, differences(experiment.name, table()[experiment.name])))
        if differing and experiment.gpu and not experiment.changed:
            yield Bullets(words("Where a virtual H200 is not as a real one"), differing)
    if experiment.others:
        yield Code(words(f"{experiment.name}.py also prints"), tuple(experiment.others.splitlines()), language="text")
    if experiment.mine:
        yield Prose((words(Span("Which case is mine?", "strong"), f" {experiment.mine}"),))
    if experiment.change:
        change, *code = experiment.change.splitlines()
        said = words(Span("Change:", "strong"), f" {change}")
        yield Code(said, tuple(code), language="python") if code else Prose((said,))
    yield Bullets(words("What should be seen"), tuple(map(_checked, experiment.checks)))
    if experiment.source:
        yield Prose((words(Span(f"source: {experiment.source}", "dim")),))


def _figures(experiment: Experiment) -> Table:
    """Returns the table of figures: the author's, those recorded on a real GPU, and those of this run. For a changed
    copy, those of the script as it was come in place of the others.
    """
    author = None if experiment.changed else table()[experiment.name].author
    columns: dict[Column, dict[str, str]] = {}
    if author is not None:
        columns[Column("author")] = dict(author.figures)
    ours = experiment.gpu and heading(experiment.gpu, virtual=True)
    beside = recorded().get((ours or "") if experiment.changed else REAL)  # docs/course.md has other GPUs, too
    if beside and (figures := beside.figures.get(experiment.name)):
        columns[Column("unchanged" if experiment.changed else REAL)] = figures
    columns[Column("here")] = {figure.label: figure.text for figure in experiment.figures}
    labels = dict.fromkeys(label for figures in reversed(columns.values()) for label in figures)
    whose = [f"author: {author.device}"] if author else []
    whose += [f"here: a virtual {experiment.gpu.upper()}"] if experiment.gpu else []
    return Table(
        words("figures", Span(f" ({'; '.join(whose)})" if whose else ", here and recorded", "dim")),
        tuple(columns),
        tuple(Row(words(label), tuple(figures.get(label, "-") for figures in columns.values())) for label in labels),
    )


def _missed_of(experiment: Experiment) -> Iterator[Against]:
    of = experiment.gpu and recorded().get(heading(experiment.gpu, virtual=True))
    if not of:
        return
    figures = {figure.label: figure.text for figure in experiment.figures}
    yield from (
        each for each in against_author(table()[experiment.name], of.device, figures) if each.missed and each.why
    )


def _missed(each: Against) -> Words:
    return words(Span(each.label, "subject"), f": {each.ratio:.2f} times the author's figure: {each.why}")


def _checked(check: Checked) -> Words:
    verdict, role = _VERDICTS[check.holds]
    if check.holds:
        return words(Span(verdict, role), f": {check.sentence}")
    reason = f"({check.reason})" if check.holds is None else check.reason
    return words(Span(verdict, role), f": {check.sentence} ", Span(reason, "dim"))


def _why_not(experiments: Sequence[Experiment]) -> Iterator[Prose]:
    """Yields why the exit code is 1, unless it is 0."""
    lines = []
    for each in experiments:
        wrong = [check.holds for check in each.checks if not check.holds]
        checks = f"{len(wrong)} of {counted(len(each.checks), 'check')}"
        if not each.holds:
            verb = "were not checked" if None in wrong else "do not hold" if len(wrong) > 1 else "does not hold"
            lines.append(words(f"{each.name}: {each.failure or f'{checks} {verb}'}"))
    if lines:
        yield Prose((words(Span("The exit code is 1:", "bad")), *lines))


def _annotations(experiment: Experiment) -> Iterator[Annotation]:
    title = f"unstall course: {experiment.name}"
    if experiment.failure:
        yield Annotation("error", title, experiment.failure)
    for check in experiment.checks:
        if not check.holds:
            yield Annotation("error", title, f"{_VERDICTS[check.holds][0]}: {check.sentence} {check.reason}")
