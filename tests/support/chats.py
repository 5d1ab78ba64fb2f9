"""Interactive chats without a terminal: the whole loop over an engine, fed with lines."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from apps.chat.answer import Answerer
from apps.chat.loop import ChatLoop
from apps.chat.saved_conversation import open_conversation
from apps.chat.settings import ChatSettings, SessionSettings
from apps.memory import NotEnoughMemory
from apps.trace import Trace
from shared.sampling import GREEDY
from shared.session import Engine
from tests.support import consoles
from tests.support.scripts import scripted


class Chat:
    """A chat over `engine`, by default a scripted one that plays `turns`. Without a `folder` it saves
    nothing by itself."""

    def __init__(
        self,
        *turns: dict[str, Any],
        engine: Engine | None = None,
        trace: Path | None = None,
        context: int = 2000,
        system: str = "",
        folder: Path | None = None,
        autosave: bool = True,
        resume: str | None = None,
        max_tokens: int = 100,
        **fields: Any,
    ) -> None:
        self.engine: Any = engine or scripted(*turns, **fields)
        settings = ChatSettings(context, system, "high", GREEDY, max_tokens)
        self.out, self.err = consoles.file(), consoles.file()
        ticks = iter(range(10**6))
        answerer = Answerer(
            self.engine, out=self.out.console, err=self.err.console, clock=lambda: float(next(ticks))
        )
        self._stack = contextlib.ExitStack()
        self.conversation, self.sessions = self._stack.enter_context(
            open_conversation(
                self.engine,
                settings,
                answerer,
                SessionSettings(folder, autosave and folder is not None, resume),
                err=self.err.console,
            )
        )
        self.lines: list[str | BaseException] = []
        self.trace = Trace(trace, say=self.err.console.print)
        self.loop = ChatLoop(
            self.engine,
            self.conversation,
            self._line,
            err=self.err.console,
            trace=self.trace,
            check_context=self._check,
            sessions=self.sessions,
        )

    def run(self, *lines: str | BaseException) -> str:
        """Feed lines (an exception is raised instead) and return what was said meanwhile on stderr. The chat
        goes on: the end of the lines is not a farewell."""
        before = len(self.err.text)
        for line in lines:
            self.lines = [line]
            if not self.loop.goes_on():
                break
        return self.err.text[before:]

    def leave(self, *lines: str | BaseException) -> str:
        """Feed lines up to the end of the input, and end the chat."""
        self.lines = list(lines)
        before = len(self.err.text)
        self.loop.run()
        self.close()
        return self.err.text[before:]

    def close(self) -> None:
        """End the chat as a program does after its loop."""
        self._stack.close()

    def _line(self) -> str:
        if not self.lines:
            raise EOFError
        line = self.lines.pop(0)
        if isinstance(line, BaseException):
            raise line
        return line

    @staticmethod
    def _check(context: int) -> None:
        if context > 100_000:
            raise NotEnoughMemory("too much")
