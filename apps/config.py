"""`--config FILE.toml`: the options of a command from a file.

A flag wins over a variable, a variable over the file, the file over the default. Owns the file's form; knows
no command and no option by name.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from apps.option_file import read_option_file
from shared.errors import UsageError

_NAME: Final = "config"


def read_config(path: Path, command: Any) -> dict[str, Any]:
    """The values in the file for the parameters of `command` (a click command), by parameter name.

    Keys are the long names of options. Raises UsageError for a file that cannot be read, and for keys and
    values that the command does not have; all unknown keys are named.
    """
    options = _options(command)
    keys = {key.replace("_", "-"): value for key, value in _load(path).items()}
    unknown = [_with_advice(key, options) for key in keys if key not in options]
    if unknown:
        raise UsageError(
            f"{path}: unknown key{'s' * (len(unknown) > 1)} {', '.join(unknown)}: keys are the long names of "
            f"options (see `ds4 {command.name} --help`)"
        )
    return {options[key].name: _value(value, options[key], f"{key} in {path}") for key, value in keys.items()}


def value_source(context: Any, parameter: Any) -> str | None:
    """How to name the file's key that gave `parameter` its value; None if it came from elsewhere."""
    source = context.get_parameter_source(parameter.name)
    if source is None or source.name != "DEFAULT_MAP":
        return None
    return f"{long_name(parameter)} in {context.params.get(_NAME)}"


def _read_first(context: typer.Context, path: Path | None) -> Path | None:
    """What the file says is there before any other option looks for its value."""
    if path is not None:
        context.default_map = read_config(path, context.command)
    return path


ConfigOption = Annotated[
    Path | None,
    typer.Option(
        f"--{_NAME}",
        metavar="FILE.toml",
        envvar="DS4_CONFIG",
        is_eager=True,
        callback=_read_first,
        help="Options from a file: `NAME = VALUE` for --NAME; flags and variables win over it.",
    ),
]


def _load(path: Path) -> dict[str, Any]:
    content = read_option_file("--config", path)
    try:
        return tomllib.loads(content.decode("utf-8-sig"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        reason = "nests too deep" if isinstance(error, RecursionError) else str(error)
        raise UsageError(f"--config {path}: not a TOML file: {reason}") from None


def _options(command: Any) -> dict[str, Any]:
    """Parameters by the long names of their options; a file does not name another file."""
    options = {long_name(parameter): parameter for parameter in command.params}
    options.pop(_NAME, None)
    return options


def long_name(parameter: Any) -> str:
    """An option's name without the dashes before it, the long one if there are several."""
    return str(next((name for name in parameter.opts if name.startswith("--")), parameter.name)).lstrip("-")


def _with_advice(key: str, options: Mapping[str, Any]) -> str:
    close = get_close_matches(key, options, n=1)
    return f"{key[:100]!r} (did you mean {close[0]!r}?)" if close else repr(key[:100])


def _value(value: Any, parameter: Any, what: str) -> Any:
    """In the form that a command line has it, so that the option's own checks apply."""
    if getattr(parameter, "is_flag", False):
        if not isinstance(value, bool):
            raise UsageError(f"{what}: give true or false")
        return value
    if getattr(parameter, "multiple", False):
        return [_word(item, what) for item in (value if isinstance(value, list) else [value])]
    return _word(value, what)


def _word(value: Any, what: str) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise UsageError(f"{what}: give a text or a number")
    return str(value)
