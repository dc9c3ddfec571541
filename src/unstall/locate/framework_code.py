"""Finds out to whom the code of a frame belongs (to the user, or to a framework), and which option
of a framework mends a finding.
"""

from __future__ import annotations

import re
from functools import cached_property

import msgspec
import numpy as np
from msgspec.structs import replace

from unstall.frameworks import is_installed, top_module
from unstall.locate.engine import models
from unstall.locate.frameworks import AROUND_A_GRAPHED_MODEL, FRAMEWORKS, Framework, Option
from unstall.locate.functions import named_functions
from unstall.locate.graphed_model import is_around_a_graphed_model
from unstall.locate.places import Places, programs
from unstall.timeline.ancestry import depths, nearest
from unstall.timeline.columns import I32, I64, Bool
from unstall.timeline.grouping import by_text

_MOSTLY = 0.5  # of a finding's events
_SOME = 0.1  # of them, which are enough to keep the others around them out of a graph
_TINY = "tiny-kernels"
_OF_LAUNCHES = ("launch-bound", _TINY)


class FrameworkCode(msgspec.Struct, frozen=True, eq=False, dict=True):
    """Tells the user's frames from the frames of frameworks, for the events of one timeline. Finds
    the options of frameworks that mend a finding. Keeps its results, so that it works them out only
    once.
    """

    places: Places
    _found: dict[str, Bool] = msgspec.field(default_factory=dict)

    def option_for(self, rule: str, place: int, rows: I64) -> tuple[Framework, Option] | None:
        """Returns `(framework, option)`: an option of a framework that mends a finding. Returns
        None if there is no such option.

        The option must apply to more than half of the finding's events. For an option that captures
        the model as a CUDA graph, only events of a model count, if the program calls any. More than
        a tenth of the events is then enough, or more than half if they are tiny kernels.

        If one framework calls another, as the Trainer calls Accelerate, only the options of the
        outermost framework count. If several of these options apply, returns the option whose
        pattern matches the innermost frame. Code of the framework must be between the event and the
        user's code. If the framework calls a callback that the user wrote, the callback is the
        user's code. Launches in a model belong to the framework even if the user wrote the model,
        because the framework's loop calls the model.

        If the option would capture the model as a CUDA graph, but the model already runs as one,
        the option `AROUND_A_GRAPHED_MODEL` is returned in its place. It has other advice.

        Args:
            rule: The name of the finding's rule.
            place: The finding's place in the source, as a number of `Places`.
            rows: The events of the finding, as rows of `timeline.host`.
        """
        places, stacks = self.places, self.places.timeline.stacks
        options = [(each, option) for each in FRAMEWORKS for option in each.options if re.fullmatch(option.rules, rule)]
        if not len(stacks) or not len(rows) or not options:
            return None
        stack = places.timeline.host.stack[rows]
        of_launches = rule in _OF_LAUNCHES
        users_loop = of_launches and self._is_own_place(place)
        has_graph = is_around_a_graphed_model(places, rows)
        of_a_model = self._are_of_a_model(rows) | (has_graph and rule != _TINY)
        ranked = []
        for framework, option in options:
            mine = self._matching(option.frame)
            if option.below:
                mine = mine & (nearest(stacks.parent, self._matching(option.below)) >= 0)
            if not mine.any() or (users_loop and not framework.has_loop and not option.of_model):
                continue
            barrier = places.is_user_frame if option.directly else self._own & (not of_launches)
            found = np.append(nearest(stacks.parent, mine | barrier), -1)[stack]
            helped = found[np.append(mine, False)[found] & (of_a_model if option.of_model else True)]
            if len(helped) > (_SOME if option.of_model and rule != _TINY else _MOSTLY) * len(rows):
                ranked.append((float(np.median(self._depth[helped])), framework, option))
        if not ranked:
            return None
        outermost = min(ranked, key=lambda each: each[0])[1]
        _, _, best = max((each for each in ranked if each[1] is outermost), key=lambda each: each[0])
        around = best.of_model and has_graph
        return outermost, replace(AROUND_A_GRAPHED_MODEL, rules=best.rules, frame=best.frame) if around else best

    def shortens(self, framework: Framework, option: Option, rows: I64) -> bool:
        """Returns whether a step becomes shorter if the user follows the advice of `option`.

        Args:
            framework: The framework of the option.
            option: The option.
            rows: The events of the finding, as rows of `timeline.host`.
        """
        if not option.own_loop or framework.loop is None:
            return option.shortens
        stacks = self.places.timeline.stacks
        inside = np.append(nearest(stacks.parent, self._matching(framework.loop)) >= 0, False)
        return option.shortens and bool(inside[self.places.timeline.host.stack[rows]].mean() <= _MOSTLY)

    def package_of(self, file: str | None) -> str | None:
        """Returns the name of the installed package that contains the file at path `file`. Returns
        None if the file belongs to the user.

        The script of the program always belongs to the user. If the user named the user's files by
        globs (`--user`), returns None for every file.
        """
        if file is None or self.places.are_named or file in self._programs or not is_installed(file):
            return None
        return top_module(file)

    def _are_of_a_model(self, rows: I64) -> Bool:
        """Returns, for each event, whether a model makes it, in its forward pass or by an operator of it in the
        backward pass. If the program calls no model, returns True for all. `rows` are rows of `timeline.host`.
        """
        host, model = self.places.timeline.host, models(self.places) >= 0
        if not model.any():
            return np.ones(len(rows), dtype=np.bool_)
        source = np.where(host.forward[rows] >= 0, host.forward[rows], rows)
        found: Bool = np.append(model, False)[host.stack[source]] | np.append(model, False)[host.stack[rows]]
        return found

    def _is_own_place(self, place: int) -> bool:
        lines = self.places.timeline.lines
        if not 0 <= place < len(lines):
            return False
        return self.package_of(self.places.timeline.text(int(lines.file[place]))) is None

    @cached_property
    def _programs(self) -> set[str]:
        return {self.places.timeline.strings[index] for index in programs(self.places.timeline)}

    @cached_property
    def _depth(self) -> I32:
        return depths(self.places.timeline.stacks.parent)

    @cached_property
    def _own(self) -> Bool:
        """A mask of the rows of `timeline.stacks` (frames) whose code belongs neither to a framework nor to an
        installed package."""
        timeline = self.places.timeline
        own = by_text(timeline.lines.file, lambda index: self.package_of(timeline.text(index)) is None) == 1
        mine: Bool = self.places.is_user_frame & own[timeline.stacks.line]
        return mine

    def _matching(self, frame: str) -> Bool:
        if frame not in self._found:
            timeline = self.places.timeline
            self._found[frame] = named_functions(timeline, re.compile(frame))[timeline.stacks.line]
        return self._found[frame]
