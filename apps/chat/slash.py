"""The slash commands of the chat: their names, their help, and how a line becomes one.

Knows text only; what a command does lies in `loop`.
"""

from __future__ import annotations

from dataclasses import dataclass

from shared.errors import Ds4Error


@dataclass(frozen=True, slots=True)
class SlashCommand:
    """A command's name, the form of its argument ("" for none) and what it does."""

    name: str
    argument: str
    help: str


SLASH_COMMANDS = (
    SlashCommand("/help", "", "show this list"),
    SlashCommand("/think", "", "think before answering"),
    SlashCommand("/think-max", "", "think with the greatest effort"),
    SlashCommand("/nothink", "", "answer without thinking"),
    SlashCommand("/effort", "low|high|max", "how hard to think"),
    SlashCommand("/ctx", "N", "another context size; the conversation stays"),
    SlashCommand("/read", "FILE", "send the contents of a file"),
    SlashCommand("/power", "[N]", "show or set the percent of the time to work"),
    SlashCommand("/steer", "[F]", "show or set how much of the steering direction is taken out"),
    SlashCommand("/stats", "", "what the conversation has cost so far"),
    SlashCommand("/list", "", "saved conversations of this model, newest first"),
    SlashCommand("/switch", "ID", "go on with another one; the first digits of its id are enough"),
    SlashCommand("/new", "", "start an empty conversation; this one is saved"),
    SlashCommand("/save", "", "save this conversation now"),
    SlashCommand("/strip", "ID", "keep only the text of a saved one, to free its space"),
    SlashCommand("/del", "ID", "delete a saved one"),
    SlashCommand("/quit", "", "leave (also /exit and Ctrl+D)"),
)
_TAKES_ARGUMENT = {command.name: bool(command.argument) for command in SLASH_COMMANDS} | {"/exit": False}


class BadInput(Ds4Error):
    """A line that the chat cannot use; the message says what would be right."""


def parse_slash(line: str) -> tuple[str, str] | None:
    """(name, argument) of a slash command; None for a message to the model.

    Several lines are a message, and so is a word with a second slash: a path. Raises BadInput for an
    unknown command and for text behind a command that would be lost.
    """
    stripped = line.strip()
    if not stripped.startswith("/") or "\n" in stripped:
        return None
    name, _, argument = stripped.partition(" ")
    argument = argument.strip()
    if "/" in name[1:]:
        return None
    if name not in _TAKES_ARGUMENT:
        raise BadInput(f"unknown command {name}: /help lists the commands")
    if argument and not _TAKES_ARGUMENT[name]:
        raise BadInput(f"{name} takes nothing behind it: send the rest as a message of its own")
    return ("/quit" if name == "/exit" else name), argument


def positive_number(argument: str, command: str, example: int) -> int:
    """The number that `/ctx` or `/power` was given. Raises BadInput."""
    # int() would also take signs, blanks, underscores and other scripts' digits.
    if not (argument.isascii() and argument.isdigit()) or not argument.strip("0"):
        raise BadInput(f"{command} needs a positive number, for example {command} {example}")
    if len(argument) > 9:
        raise BadInput(f"{command} {argument[:12]} is too large")
    return int(argument)


def help_lines() -> list[str]:
    """The command list as aligned lines."""
    heads = [f"{command.name} {command.argument}".strip() for command in SLASH_COMMANDS]
    width = max(map(len, heads)) + 2
    lines = [f"{head:<{width}}{command.help}" for head, command in zip(heads, SLASH_COMMANDS, strict=True)]
    keys = "Enter sends, Alt+Enter or Ctrl+J starts a new line, Ctrl+C stops an answer or drops the line."
    return [*lines, keys]
