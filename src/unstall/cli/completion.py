"""Print a shell script that completes unstall's verbs and options.

To load it:

    bash  eval "$(unstall completion bash)"     in ~/.bashrc
    zsh   eval "$(unstall completion zsh)"      in ~/.zshrc, after compinit
    fish  unstall completion fish > ~/.config/fish/completions/unstall.fish
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast


@dataclass(frozen=True, slots=True)
class Option:
    """One option of a verb."""

    names: tuple[str, ...]
    about: str
    takes_value: bool
    values: tuple[str, ...]  # allowed values; empty if any file is allowed


@dataclass(frozen=True, slots=True)
class Command:
    """One verb, with its possible arguments. They are files unless the verb lists them."""

    name: str
    about: str
    options: tuple[Option, ...]
    arguments: tuple[str, ...]


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=tuple(_SCRIPTS))


def run(args: argparse.Namespace) -> int:
    from unstall.cli import build_parser

    print(_SCRIPTS[args.shell](list(_commands(build_parser()))), end="")
    return 0


def _commands(parser: argparse.ArgumentParser) -> Iterator[Command]:
    action = next(a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    about = {choice.dest: choice.help or "" for choice in action._choices_actions}
    for name, subparser in cast("dict[str, argparse.ArgumentParser]", action.choices).items():
        options: list[Option] = []
        arguments: list[str] = []
        for a in subparser._actions:
            if a.help == argparse.SUPPRESS:
                continue
            values = tuple(str(choice) for choice in a.choices or ())
            if a.option_strings:
                help_line = (a.help or "").replace("%%", "%")
                options.append(Option(tuple(a.option_strings), help_line, a.nargs != 0, values))
            else:
                arguments += values
        yield Command(name, about[name], tuple(options), tuple(arguments))


def _bash(commands: list[Command]) -> str:
    lines = [
        "_unstall() {",
        '  local word="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}" words=',
        "  COMPREPLY=()",
        '  case "$COMP_CWORD:${COMP_WORDS[1]}:$before" in',
        f"    1:*) words='{' '.join(command.name for command in commands)} --help --version' ;;",
    ]
    for command in commands:
        for option in command.options:
            if option.values:
                pattern = "|".join(f"*:{command.name}:{name}" for name in option.names)
                lines.append(f"    {pattern}) words='{' '.join(option.values)}' ;;")
        names = " ".join(name for option in command.options for name in option.names)
        dashes = f"[[ $word == -* ]] && words='{names}' || words='{' '.join(command.arguments)}'"
        lines.append(f"    *:{command.name}:*) {dashes} ;;")
    lines += [
        "  esac",
        '  [[ -n $words ]] && COMPREPLY=($(compgen -W "$words" -- "$word"))',
        "}",
        "complete -o default -F _unstall unstall",
    ]
    return _script(lines)


def _zsh(commands: list[Command]) -> str:
    lines = ["#compdef unstall", "_unstall() {", "  if (( CURRENT == 2 )); then", "    local -a verbs=("]
    lines += [f"      {_quoted(f'{command.name}:{command.about}')}" for command in commands]
    lines += ["    )", "    _describe verb verbs", "    return", "  fi", "  local verb=$words[2]"]
    lines += ["  shift words; (( CURRENT-- ))", "  case $verb in"]
    for command in commands:
        specs = [_zsh_option(name, option) for option in command.options for name in option.names]
        specs.append(_quoted(f"*:argument:({' '.join(command.arguments)})" if command.arguments else "*:file:_files"))
        lines += [f"    {command.name}) _arguments \\", *(f"      {spec} \\" for spec in specs[:-1])]
        lines += [f"      {specs[-1]} ;;"]
    lines += ["  esac", "}", "compdef _unstall unstall"]
    return _script(lines)


def _zsh_option(name: str, option: Option) -> str:
    about = option.about.replace("\\", "\\\\").replace("[", "\\[").replace("]", "\\]")
    value = ""
    if option.takes_value:
        value = f":value:({' '.join(option.values)})" if option.values else ":value:_files"
    return _quoted(f"*{name}[{about}]{value}")


def _fish(commands: list[Command]) -> str:
    lines = []
    for command in commands:
        lines.append(f"complete -c unstall -n __fish_use_subcommand -f -a {command.name} -d {_quoted(command.about)}")
        within = f"complete -c unstall -n '__fish_seen_subcommand_from {command.name}'"
        if command.arguments:
            lines.append(f"{within} -f -a '{' '.join(command.arguments)}'")
        for option in command.options:
            names = " ".join(f"-l {n[2:]}" if n.startswith("--") else f"-s {n[1:]}" for n in option.names)
            value = f" -x -a '{' '.join(option.values)}'" if option.values else " -r" if option.takes_value else ""
            lines.append(f"{within} {names}{value} -d {_quoted(option.about)}")
    return _script(lines)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def _script(lines: list[str]) -> str:
    return "\n".join(lines) + "\n"


_SCRIPTS = {"bash": _bash, "zsh": _zsh, "fish": _fish}
