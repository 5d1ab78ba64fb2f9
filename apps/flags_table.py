"""Writes docs/flags.md: every option of every command, from the commands themselves.

`python -m apps.flags_table` rewrites the file.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from apps.aliases import ALIASES
from apps.cli import COMMANDS, load_command
from apps.later import REFUSED

FLAGS_PAGE = Path(__file__).parents[1] / "docs" / "flags.md"

_HEAD = """\
# Flags

Every option of every `ds4` command. This page is generated: change the options, then run
`python -m apps.flags_table`. A variable is used where its option is absent from the command line.

| Option | Variable | Default | Other spellings | Commands | Meaning |
|---|---|---|---|---|---|
"""
_LATER = """
## Not in this version

Options of the original engine that are understood but refused with one line.

"""


@dataclass(slots=True)
class FlagRow:
    """One line of the table: an option as some commands have it."""

    names: tuple[str, ...]
    variables: tuple[str, ...]
    default: str
    help: str
    commands: list[str] = field(default_factory=list)

    def markdown(self) -> str:
        """The row; long names first, so that the page sorts by them."""
        other = [alias for alias, words in ALIASES.items() if words[0] in self.names]
        cells = (_code(self.names), _code(self.variables), self.default, _code(other))
        return f"| {' | '.join(cells)} | {', '.join(self.commands)} | {_cell(self.help)} |"


def flags_page() -> str:
    """The whole page."""
    rows: dict[tuple[Any, ...], FlagRow] = {}
    for name in COMMANDS:
        for command_name, parameter in _options(name, load_command(name)):
            row = _row(parameter)
            key = (row.names, row.variables, row.default, row.help)
            rows.setdefault(key, row).commands.append(command_name)
    table = sorted(rows.values(), key=lambda row: (row.names[0].lstrip("-"), row.commands))
    refused = "".join(f"- `{name}`: {_cell(reason)}\n" for name, reason in sorted(REFUSED.items()))
    return _HEAD + "".join(f"{row.markdown()}\n" for row in table) + _LATER + refused


def _options(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    for parameter in command.params:
        if parameter.param_type_name == "option" and not getattr(parameter, "hidden", False):
            yield name, parameter
    for nested_name, nested in getattr(command, "commands", {}).items():
        yield from _options(f"{name} {nested_name}", nested)


def _row(parameter: Any) -> FlagRow:
    names = sorted([*parameter.opts, *parameter.secondary_opts], key=lambda name: -len(name))
    variables = parameter.envvar or ()
    return FlagRow(
        names=tuple(names),
        variables=(variables,) if isinstance(variables, str) else tuple(variables),
        default=_default(parameter),
        help=parameter.help or "",
    )


def _default(parameter: Any) -> str:
    if isinstance(parameter.show_default, str):
        return _cell(parameter.show_default)
    value = parameter.default
    if parameter.required:
        return "required"
    if value is None or callable(value):
        return ""
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"`{_cell(str(getattr(value, 'value', value)))}`"


def _code(words: list[str] | tuple[str, ...]) -> str:
    return ", ".join(f"`{word}`" for word in words)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    FLAGS_PAGE.write_text(flags_page(), encoding="utf-8")
