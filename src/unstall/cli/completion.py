"""Print a shell script that completes unstall's verbs, options, and values.

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

from unstall.cli._completed import FOLDER, Values, values_of


@dataclass(frozen=True, slots=True)
class Option:
    """One option of a verb, such as `run`, with what a shell suggests for it.

    Attributes:
        names: The names of the option, such as -q and --quiet.
        about: The help text.
        takes_value: Whether a value follows the option.
        values: What a shell suggests as the value.
    """

    names: tuple[str, ...]
    about: str
    takes_value: bool
    values: Values


@dataclass(frozen=True, slots=True)
class Command:
    """One verb, such as `run`, with what a shell suggests for it.

    Attributes:
        name: The verb.
        about: The first sentence of its help text.
        options: Its options.
        arguments: What a shell suggests as its positional arguments.
    """

    name: str
    about: str
    options: tuple[Option, ...]
    arguments: Values


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", metavar="SHELL", choices=tuple(_SCRIPTS), help="bash, zsh or fish")


def run(args: argparse.Namespace) -> int:
    from unstall.cli import build_parser

    print(_SCRIPTS[args.shell](list(_commands(build_parser()))), end="")
    return 0


def _commands(parser: argparse.ArgumentParser) -> Iterator[Command]:
    action = next(a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    about = {choice.dest: choice.help or "" for choice in action._choices_actions}
    for name, subparser in cast("dict[str, argparse.ArgumentParser]", action.choices).items():
        options: list[Option] = []
        arguments = Values()
        for a in subparser._actions:
            if a.help == argparse.SUPPRESS:
                continue
            values = values_of(name, a)
            if a.option_strings:
                help_line = (a.help or "").replace("%%", "%")
                options.append(Option(tuple(a.option_strings), help_line, a.nargs != 0, values))
            else:
                arguments += values
        yield Command(name, about[name], tuple(options), arguments)


def _bash(commands: list[Command]) -> str:
    lines = [
        "_unstall() {",
        '  local word="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}" words= endings=',
        "  COMPREPLY=()",
        '  case "$COMP_CWORD:${COMP_WORDS[1]}:$before" in',
        f"    1:*) words='{' '.join(command.name for command in commands)} --help --version' ;;",
    ]
    for command in commands:
        for option in command.options:
            if setting := _bash_values(option.values):
                pattern = "|".join(f"*:{command.name}:{name}" for name in option.names)
                lines.append(f"    {pattern}) {setting} ;;")
        names = " ".join(name for option in command.options for name in option.names)
        arguments = _bash_values(command.arguments) or ":"
        lines.append(f"    *:{command.name}:*) if [[ $word == -* ]]; then words='{names}'; else {arguments}; fi ;;")
    # A name that goes on after a colon gets no space. Files are matched by their endings, and folders lead to files.
    lines += [
        "  esac",
        '  [[ -n $words ]] && COMPREPLY=($(compgen -W "$words" -- "$word"))',
        "  [[ ${#COMPREPLY[@]} == 1 && $COMPREPLY == *: ]] && compopt -o nospace 2>/dev/null",
        "  if [[ -n $endings ]]; then",
        "    local ending IFS=$' \\n'",
        "    for ending in $endings; do",
        "      local IFS=$'\\n'",
        '      COMPREPLY+=($(compgen -f -X "!*$ending" -- "$word"))',
        "    done",
        '    COMPREPLY+=($(compgen -d -- "$word"))',
        "    compopt -o filenames 2>/dev/null",
        "  fi",
        "  return 0",
        "}",
        "complete -o default -F _unstall unstall",
    ]
    return _script(lines)


def _bash_values(values: Values) -> str:
    """Returns assignments of shell variables that list the possible completions of a value; "" if no completion is
    known.
    """
    both = (("words", values.words), ("endings", values.endings))
    return " ".join(f"{name}='{' '.join(these)}'" for name, these in both if these)


def _zsh(commands: list[Command]) -> str:
    lines = ["#compdef unstall", "_unstall() {", "  if (( CURRENT == 2 )); then", "    local -a verbs=("]
    lines += [f"      {_quoted(f'{command.name}:{command.about}')}" for command in commands]
    lines += ["    )", "    _describe verb verbs", "    return", "  fi", "  local verb=$words[2]"]
    lines += ["  shift words; (( CURRENT-- ))", "  case $verb in"]
    for command in commands:
        specs = [_zsh_option(name, option) for option in command.options for name in option.names]
        specs.append(_quoted(f"*:argument:{_zsh_values(command.arguments) or '_files'}"))
        lines += [f"    {command.name}) _arguments \\", *(f"      {spec} \\" for spec in specs[:-1])]
        lines += [f"      {specs[-1]} ;;"]
    lines += ["  esac", "}", "compdef _unstall unstall"]
    return _script(lines)


def _zsh_option(name: str, option: Option) -> str:
    about = option.about.replace("\\", "\\\\").replace("[", "\\[").replace("]", "\\]")
    value = f":value:{_zsh_values(option.values)}" if option.takes_value else ""
    return _quoted(f"*{name}[{about}]{value}")


def _zsh_values(values: Values) -> str:
    """Returns the action of zsh that completes a value; "" if no completion is known."""
    words = " ".join(values.words).replace(":", "\\:")
    # In zsh "*(.py)" has qualifiers, and "*(.html|.md)" has none.
    pattern = values.endings[0] if len(values.endings) == 1 else f"({'|'.join(values.endings)})"
    files = f'_files -g "*{pattern}"' if values.endings else ""
    if FOLDER in values.endings:
        files = "_files -/"
    if words and files:
        return f"{{compadd -- {words}; {files}}}"
    return files or (words and f"({words})")


_FISH_FILES = r"""function __unstall_files
    set -l paths (complete -C "'' "(commandline -ct) | string replace -r '\t.*' '')
    string match -r -- ".*(?:"(string escape --style=regex -- $argv | string join '|')"|/)\$" $paths
    or string join \n -- $paths
end"""
"""A fish function that lists folders, and files whose names end in one of the function's arguments.

If there are no such files and no folders, the function lists all files.
"""


def _fish(commands: list[Command]) -> str:
    lines = [_FISH_FILES]
    for command in commands:
        lines.append(f"complete -c unstall -n __fish_use_subcommand -f -a {command.name} -d {_quoted(command.about)}")
        within = f"complete -c unstall -n '__fish_seen_subcommand_from {command.name}'"
        if arguments := _fish_values(command.arguments):
            lines.append(f"{within} -f -a {_quoted(arguments)}")
        for option in command.options:
            names = " ".join(f"-l {n[2:]}" if n.startswith("--") else f"-s {n[1:]}" for n in option.names)
            values = _fish_values(option.values)
            value = f" -x -a {_quoted(values)}" if values else " -x" if option.takes_value else ""
            lines.append(f"{within} {names}{value} -d {_quoted(option.about)}")
    return _script(lines)


def _fish_values(values: Values) -> str:
    """Returns the completions of a value for fish: words, and commands that list files. Returns "" if no completion is
    known.
    """
    files = [f"(__unstall_files {' '.join(values.endings)})"] if values.endings else []
    if FOLDER in values.endings:
        files = ["(__fish_complete_directories)"]
    return " ".join([*values.words, *files])


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def _script(lines: list[str]) -> str:
    return "\n".join(lines) + "\n"


_SCRIPTS = {"bash": _bash, "zsh": _zsh, "fish": _fish}
