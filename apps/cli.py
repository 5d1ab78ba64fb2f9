"""The `ds4` command: picks a subcommand, imports only that one, and turns failures into one line.

Knows no option of any subcommand and no engine. Nothing heavy may be imported here: `ds4 --help` must
feel instant.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import typer

PROGRAM = "ds4"
DEFAULT_COMMAND = "chat"
USAGE_EXIT, INTERRUPT_EXIT = 2, 130


@dataclass(frozen=True, slots=True)
class Command:
    """A subcommand: `target` is `module:name` of a function or of a Typer application."""

    target: str
    help: str


COMMANDS: dict[str, Command] = {
    "chat": Command(
        "apps.chat.command:chat", "Talk to the model, or answer one prompt (the default command)."
    ),
    "serve": Command("apps.serve.command:serve", "Serve the HTTP API for clients and agents."),
    "bench": Command("apps.bench.command:app", "Measure prefill and generation over growing contexts."),
    "pull": Command("apps.pull.command:pull", "Download a model file."),
    "doctor": Command("apps.doctor:doctor", "Check this machine: backends, memory, model file."),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `ds4` with `arguments` (default: the process's own) and return the exit code."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    if problem := _foreign_shared_package():
        return _fail(problem, 1)
    try:
        code = _dispatch(arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        _discard_output()
        return 1
    except KeyboardInterrupt:
        return INTERRUPT_EXIT
    return code


def _dispatch(arguments: list[str]) -> int:
    first = arguments[0] if arguments else ""
    if first in ("--help", "-h", "help"):
        print(help_text())
        return 0
    if first in ("--version", "-V"):
        from shared import __version__

        print(f"{PROGRAM} {__version__}")
        return 0
    if first in COMMANDS:
        return _guarded(first, arguments[1:])
    if first == "" or first.startswith("-"):
        return _guarded(DEFAULT_COMMAND, arguments)
    return _fail(_unknown_command(first), USAGE_EXIT)


def _guarded(name: str, arguments: list[str]) -> int:
    """Run one subcommand; every failure becomes one line on stderr and an exit code."""
    from shared.errors import Ds4Error

    try:
        return run(name, arguments)
    except BrokenPipeError:
        raise
    except Ds4Error as error:
        return _fail(str(error), error.exit_code)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return _fail(f"{where}{error.strerror or error}", 1)
    except MemoryError:
        return _fail("out of memory: lower --ctx or use a smaller model file", 1)
    except ImportError as error:
        return _fail(f"`{PROGRAM} {name}` cannot start: {error}", 1)
    except Exception as error:
        if os.environ.get("DS4_TRACEBACK"):
            raise
        return _fail(
            f"internal error: {type(error).__name__}: {error} (DS4_TRACEBACK=1 shows where)",
            1,
        )


def run(name: str, arguments: Sequence[str]) -> int:
    """Parse and run one subcommand. Usage errors are raised as `UsageError`."""
    import typer

    from apps.aliases import rewrite
    from shared.errors import UsageError

    command = load_command(name)
    # Typer carries its own copy of click, whose exception root it does not export.
    ancestors: Sequence[Any] = typer.BadParameter.__mro__
    click_exception: type[Exception] = next(kind for kind in ancestors if kind.__name__ == "ClickException")
    try:
        result = command.main(
            rewrite(arguments, command), prog_name=f"{PROGRAM} {name}", standalone_mode=False
        )
    except typer.Abort:
        return INTERRUPT_EXIT
    except click_exception as error:
        message: str = error.format_message()  # type: ignore[attr-defined]
        raise UsageError(f"{' '.join(message.split())} (see `{PROGRAM} {name} --help`)") from None
    return result if isinstance(result, int) else 0


def load_command(name: str) -> Any:
    """Import a subcommand and build its click command (a group for `bench`)."""
    import typer

    module, _, attribute = COMMANDS[name].target.partition(":")
    target = getattr(importlib.import_module(module), attribute)
    if not isinstance(target, typer.Typer):
        target = _application(name, target)
    command = typer.main.get_command(target)
    command.name = name
    return command


def _application(name: str, function: Any) -> typer.Typer:
    import typer

    application = typer.Typer(add_completion=False)
    names = {"help_option_names": ["-h", "--help"]}
    application.command(name, help=function.__doc__ or COMMANDS[name].help, context_settings=names)(function)
    return application


def help_text() -> str:
    """The text of `ds4 --help`."""
    width = max(map(len, COMMANDS)) + 2
    lines = [
        f"Usage: {PROGRAM} [COMMAND] [OPTIONS]",
        "",
        "DeepSeek V4 on your own machine.",
        "",
        "Commands:",
        *(f"  {name:<{width}}{command.help}" for name, command in COMMANDS.items()),
        "",
        "Options:",
        f"  {'--version':<{width + 6}}Show the version.",
        f"  {'-h, --help':<{width + 6}}Show this text.",
        "",
        f"`{PROGRAM}` alone starts a chat, `{PROGRAM} -p TEXT` answers one prompt.",
        f"`{PROGRAM} COMMAND --help` lists the options of a command.",
    ]
    return "\n".join(lines)


def _unknown_command(word: str) -> str:
    from difflib import get_close_matches

    close = get_close_matches(word, COMMANDS, n=1)
    advice = f"did you mean `{PROGRAM} {close[0]}`?" if close else f"commands are {', '.join(COMMANDS)}"
    return f"unknown command {word!r}: {advice} (one prompt: `{PROGRAM} -p TEXT`)"


def _foreign_shared_package() -> str | None:
    """`shared` is a common name: say so when another package of that name stands first on the path."""
    shared = importlib.import_module("shared")
    if getattr(shared, "DS4_PACKAGE", None) == "ds4":
        return None
    found = getattr(shared, "__file__", None) or "a folder without __init__.py"
    return f"another package named `shared` hides ours ({found}): install ds4 with `uv tool install` or pipx"


def _fail(message: str, code: int) -> int:
    print(f"{PROGRAM}: {message}", file=sys.stderr, flush=True)
    return code


def _discard_output() -> None:
    """The reader of our output left: point stdout at nothing so that the final flush stays quiet."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    sys.exit(main())
