"""The `ds4` command: picks a subcommand, imports only that one, and turns failures into one line.

Knows no option of any subcommand and no engine. Nothing heavy may be imported here: `ds4 --help` must
feel instant.
"""

from __future__ import annotations

import importlib
import io
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import typer

PROGRAM = "ds4"
DEFAULT_COMMAND = "chat"
USAGE_EXIT, INTERRUPT_EXIT = 2, 130
_ALL_PROBLEMS = f"; `{PROGRAM} --inspect -m FILE` lists all"


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
    "doctor": Command("apps.doctor:doctor", "Check this machine: backends, kernels, memory, model file."),
    "eval": Command("apps.eval.command:evaluate", "Ask a model questions with known answers."),
    "score": Command("apps.score.command:app", "Score how well a model predicts given continuations."),
    "vectors": Command(
        "apps.vectors.command:vectors", "Check that a model computes what was recorded of it."
    ),
    "splice": Command("apps.splice.command:splice", "Mix the layers of two files of one model."),
    "quantize": Command(
        "apps.quantize.command:quantize", "Make a model file from a Hugging Face checkpoint."
    ),
    "imatrix": Command(
        "apps.imatrix.command:imatrix", "Collect what matters to the experts, for `ds4 quantize`."
    ),
    "steer": Command("apps.steer.command:app", "Find directions that steer a model, and try them."),
    "kv": Command("apps.kv.command:app", "Look at saved states, check them and clean them up."),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `ds4` with `arguments` (default: the process's own) and return the exit code."""
    whole_process = arguments is None
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    if problem := _foreign_shared_package():
        return _fail(problem, 1)
    try:
        _repair_streams()
        return _guarded(arguments)
    except BrokenPipeError:
        return 1
    except KeyboardInterrupt:
        return INTERRUPT_EXIT
    finally:
        if whole_process:
            # A second Ctrl+C would only tear the interpreter's own clean-up, with a traceback.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        _discard_unwritten()


def _dispatch(name: str, arguments: list[str]) -> int:
    if name in COMMANDS:
        return run(name, arguments)
    if name in ("--help", "-h", "help"):
        print(help_text())
        return 0
    if name in ("--version", "-V"):
        from shared import __version__

        print(f"{PROGRAM} {__version__}")
        return 0
    return _fail(_unknown_command(name), USAGE_EXIT)


def _split(arguments: list[str]) -> tuple[str, list[str]]:
    """The command's name and what follows it; options alone go to the default command."""
    first = arguments[0] if arguments else ""
    if first in ("--help", "-h", "--version", "-V") or (first and not first.startswith("-")):
        return first, arguments[1:]
    return DEFAULT_COMMAND, arguments


def _guarded(arguments: list[str]) -> int:
    """Run one command; every failure becomes one line on stderr and an exit code."""
    from shared.errors import Ds4Error

    name, rest = _split(arguments)
    try:
        code = _dispatch(name, rest)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        raise
    except Ds4Error as error:
        more = len(getattr(error, "problems", ())) > 1 and "--inspect" not in rest
        return _fail(f"{error}{_ALL_PROBLEMS if more else ''}", error.exit_code)
    except OSError as error:
        where = f"{os.fsdecode(error.filename)}: " if error.filename else ""
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
        raise UsageError(_usage_problem(name, error)) from None
    return result if isinstance(result, int) else 0


def _usage_problem(name: str, error: Any) -> str:
    """One line for what the parser refused: which option or variable, why, and where to read on."""
    context, parameter = getattr(error, "ctx", None), getattr(error, "param", None)
    if type(error).__name__ == "BadParameter" and context is not None and parameter is not None:
        reason = str(error.message).removeprefix("Value error, ").removesuffix(".")
        what = _given_as(context, parameter)
        wish = reason.removeprefix("Input should ").partition(", ")[0]
        message = f"{what} should {wish}" if reason.startswith("Input should ") else f"{what}: {reason}"
    else:
        message = error.format_message()
    command = context.command_path if context is not None else f"{PROGRAM} {name}"
    return f"{' '.join(message.split()).removesuffix('.')} (see `{command} --help`)"


def _given_as(context: Any, parameter: Any) -> str:
    """The option, or the environment variable or the key of a file that its value came from."""
    from apps.config import value_source

    if key := value_source(context, parameter):
        return key
    source = context.get_parameter_source(parameter.name)
    if source is not None and source.name == "ENVIRONMENT":
        variables = [parameter.envvar] if isinstance(parameter.envvar, str) else parameter.envvar
        return str(next(name for name in variables if os.environ.get(name)))
    return "/".join(parameter.opts)


def load_command(name: str) -> Any:
    """Import a subcommand and build its click command (a group for `bench`)."""
    import typer

    module, _, attribute = COMMANDS[name].target.partition(":")
    target = getattr(importlib.import_module(module), attribute)
    if not isinstance(target, typer.Typer):
        target = _application(name, target)
    command = typer.main.get_command(target)
    command.name = name
    _tidy_help(command)
    return command


def _tidy_help(command: Any) -> None:
    """Paragraphs that fill the width, and no type beside a flag that takes no value."""
    command.help = "\n\n".join(" ".join(part.split()) for part in (command.help or "").split("\n\n"))
    for parameter in command.params:
        if getattr(parameter, "is_flag", False):
            parameter.metavar = ""
    for nested in getattr(command, "commands", {}).values():
        _tidy_help(nested)


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


def _repair_streams() -> None:
    """A stream that was closed at start swallows what it gets, so that no other file can take its
    number; a character that a stream cannot encode becomes `?` instead of an error."""
    for name in ("stdin", "stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            descriptor = os.open(os.devnull, os.O_RDWR)
            if name != "stdin":
                setattr(sys, name, os.fdopen(descriptor, "w", encoding="utf-8"))
        elif name != "stdin" and isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _discard_unwritten() -> None:
    """What a reader that left, or a full disk, did not take must not fail again at the very end."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


if __name__ == "__main__":
    sys.exit(main())
