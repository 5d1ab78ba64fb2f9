"""Reads lines from a terminal: several lines at once, with history and completion.

Knows the names of the slash commands; nothing of what they do.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion, PathCompleter
from prompt_toolkit.document import Document
from prompt_toolkit.input import Input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.output import ColorDepth, Output
from prompt_toolkit.output.defaults import create_output

from apps.chat.history import PromptHistory
from apps.chat.loop import EFFORTS
from apps.chat.quiet_terminal import Ended
from apps.chat.slash import SLASH_COMMANDS

PROMPT = "ds4> "
IDLE_SECONDS = 60.0
_READ = "/read "
_EFFORT = "/effort "


class ChatCompleter(Completer):
    """Completes command names at the start of a line, files after /read and levels after /effort."""

    def __init__(self) -> None:
        self._paths = PathCompleter(expanduser=True)

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        text = document.text_before_cursor
        if text.startswith(_READ):
            path = Document(text.removeprefix(_READ).lstrip())
            yield from self._paths.get_completions(path, complete_event)
        elif text.startswith(_EFFORT):
            word = text.removeprefix(_EFFORT).lstrip()
            yield from (Completion(level, -len(word)) for level in EFFORTS if level.startswith(word))
        elif text.startswith("/") and " " not in text:
            for command in SLASH_COMMANDS:
                if command.name.startswith(text):
                    yield Completion(command.name, -len(text), display_meta=command.help)


def line_reader(
    history: Path,
    *,
    when_idle: Callable[[], None] | None = None,
    idle_seconds: float = IDLE_SECONDS,
    source: Input | None = None,
    output: Output | None = None,
) -> Callable[[], str]:
    """A function that reads one message. It raises KeyboardInterrupt on Ctrl+C and EOFError on Ctrl+D.

    `when_idle` is called on the same thread once a prompt has waited for `idle_seconds`; it must not raise.
    """
    session: PromptSession[str] = PromptSession(
        PROMPT,
        multiline=True,
        history=PromptHistory(history),
        completer=ChatCompleter(),
        complete_while_typing=False,
        key_bindings=_keys(),
        prompt_continuation=" " * len(PROMPT),
        enable_open_in_editor=True,
        color_depth=ColorDepth.DEPTH_1_BIT if os.environ.get("NO_COLOR") else None,
        input=source,
        # With stdout in a file the prompt still belongs on the terminal.
        output=output or create_output(always_prefer_tty=True),
    )

    async def notice_idleness(called: Callable[[], None]) -> None:
        await asyncio.sleep(idle_seconds)
        called()

    def start_waiting() -> None:
        if when_idle is not None:
            # The task ends with the prompt.
            session.app.create_background_task(notice_idleness(when_idle))

    def read() -> str:
        try:
            return session.prompt(pre_run=start_waiting)
        except Ended as ended:
            sys.exit(ended.code)

    return read


def _keys() -> KeyBindings:
    keys = KeyBindings()

    @keys.add("enter")
    def send(event: KeyPressEvent) -> None:
        event.current_buffer.validate_and_handle()

    @keys.add("escape", "enter")
    @keys.add("c-j")
    def new_line(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    return keys
