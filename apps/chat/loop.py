"""The interactive chat: reads lines, runs commands, sends messages. No bad input and no failed turn ends it.

Knows the conversation and a function that reads a line; nothing of the keyboard. Spec: apps §1.3.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, cast

from apps.chat.answer import ending_note
from apps.chat.conversation import Conversation
from apps.chat.interrupt import Interrupt
from apps.chat.session_commands import SessionCommands
from apps.chat.slash import BadInput, help_lines, parse_slash, positive_number
from apps.chat.steering import set_scale, steering_line
from apps.chat.turn_trace import turn_fields
from apps.console import say
from apps.prompt import read_file
from apps.startup import thinking_line
from apps.trace import Trace
from shared.errors import Cancelled, Ds4Error
from shared.session import Engine
from shared.text.effort import Effort, resolve_effort

if TYPE_CHECKING:
    from rich.console import Console

EFFORTS = ("low", "high", "max")
# Raises Ds4Error if a session of so many tokens does not fit in memory.
ContextCheck = Callable[[int], object]


class ChatLoop:
    """Runs until the line source ends or the user leaves."""

    def __init__(
        self,
        engine: Engine,
        conversation: Conversation,
        read_line: Callable[[], str],
        *,
        err: Console,
        trace: Trace,
        check_context: ContextCheck,
        sessions: SessionCommands,
    ) -> None:
        self._engine = engine
        self._conversation = conversation
        self._read_line = read_line
        self._err = err
        self._trace = trace
        self._check_context = check_context
        self._sessions = sessions
        self._commands: dict[str, Callable[[str], None]] = {
            "/help": self._help,
            "/think": lambda _: self._set_effort("high"),
            "/think-max": lambda _: self._set_effort("max"),
            "/nothink": lambda _: self._set_effort("none"),
            "/effort": self._effort,
            "/ctx": self._context,
            "/read": self._read,
            "/power": self._power,
            "/steer": self._steer,
            "/stats": self._stats,
            "/list": lambda _: sessions.show_list(),
            "/new": lambda _: sessions.new(),
            "/save": lambda _: sessions.save(),
            "/switch": self._with_id("/switch", sessions.switch),
            "/strip": self._with_id("/strip", sessions.strip),
            "/del": self._with_id("/del", sessions.delete),
        }

    def run(self) -> None:
        """Read and handle lines until Ctrl+D or /quit, and save. Saves too when it has to end: by a signal,
        or because its terminal is gone."""
        try:
            while self.goes_on() or not self._sessions.leave():
                pass
        except (SystemExit, OSError):
            self._sessions.leave()
            raise

    def handle(self, line: str) -> bool:
        """Do what one line asks for; False to leave."""
        try:
            command = parse_slash(line)
            if command is None:
                if line.strip():
                    self._send(line)
                return True
            name, argument = command
            if name == "/quit":
                return False
            self._commands[name](argument)
        except SystemExit:
            # A signal came in the middle of a step.
            self._conversation.forget_state()
            raise
        except Cancelled:
            say("interrupted", "ds4.warning", on=self._err)
        except Ds4Error as error:
            say(str(error), "ds4.error", on=self._err)
        except MemoryError:
            self._conversation.forget_state()
            say("out of memory: /ctx with a smaller number frees some", "ds4.error", on=self._err)
        except Exception as error:
            # A fault of ours must not cost the user the conversation.
            self._conversation.forget_state()
            say(f"internal error: {type(error).__name__}: {error}", "ds4.error", on=self._err)
        return True

    def goes_on(self) -> bool:
        """Read and handle one line; False to leave."""
        try:
            return self.handle(self._read_line())
        except KeyboardInterrupt:
            return True
        except EOFError:
            return False

    def _send(self, message: str) -> None:
        conversation = self._conversation
        try:
            with Interrupt() as interrupt:
                answer = conversation.send(message, interrupt)
        except Cancelled:
            say("interrupted: the message was not sent", "ds4.warning", on=self._err)
            return
        except KeyboardInterrupt:
            # The engine was torn off in the middle of a step.
            conversation.forget_state()
            say("interrupted: the turn was dropped", "ds4.warning", on=self._err)
            return
        self._trace.write("turn", **turn_fields(conversation.last_prompt, answer, self._engine.tokenizer))
        if answer.cause == "cancelled":
            kept = "the partial answer stays" if answer.tokens else "the message was not sent"
            say(f"interrupted: {kept}", "ds4.warning", on=self._err)
        if note := ending_note(answer, conversation.settings, conversation.context):
            say(note, "ds4.warning", on=self._err)
        say(answer.statistics.line(), "ds4.timing", on=self._err)

    def _help(self, argument: str) -> None:
        for line in help_lines():
            say(line, "ds4.muted", on=self._err)

    @staticmethod
    def _with_id(name: str, command: Callable[[str], None]) -> Callable[[str], None]:
        def run(argument: str) -> None:
            if not argument:
                raise BadInput(f"{name} needs the first digits of a session's id: /list shows them")
            command(argument)

        return run

    def _effort(self, argument: str) -> None:
        if argument not in EFFORTS:
            raise BadInput(f"/effort needs one of {', '.join(EFFORTS)} (now {self._conversation.effort})")
        self._set_effort(cast(Effort, argument))

    def _set_effort(self, requested: Effort) -> None:
        effort, note = resolve_effort(requested, self._engine.effort_profile, self._conversation.context)
        if note:
            say(note, "ds4.warning", on=self._err)
        self._conversation.set_effort(effort)
        say(thinking_line(self._engine, effort), "ds4.ok", on=self._err)

    def _context(self, argument: str) -> None:
        context = positive_number(argument, "/ctx", 65536)
        tokens = len(self._conversation)
        if tokens >= context:
            raise BadInput(f"/ctx {context} is too small: the conversation has {tokens} tokens")
        self._check_context(context)
        self._conversation.resize(context)
        say(f"context {context}: the next turn prefills all {tokens} tokens", "ds4.ok", on=self._err)
        effort = self._conversation.effort
        if resolve_effort(effort, self._engine.effort_profile, context)[0] != effort:
            self._set_effort(effort)

    def _read(self, argument: str) -> None:
        if not argument:
            raise BadInput("/read needs a file name")
        content = read_file(Path(argument).expanduser())
        if not content.strip():
            raise BadInput(f"{argument} is empty")
        self._send(content.decode("utf-8", "replace"))

    def _power(self, argument: str) -> None:
        power = self._engine.power
        if argument:
            percent = positive_number(argument, "/power", 50)
            if percent > 100:
                raise BadInput("/power takes 1 to 100 percent")
            power.percent = percent
        say(f"power {power.percent} %", "ds4.ok", on=self._err)

    def _steer(self, argument: str) -> None:
        changed = bool(argument) and set_scale(self._engine, argument)
        say(steering_line(self._engine), "ds4.ok", on=self._err)
        if changed and self._conversation.turns:
            tokens = len(self._conversation)
            say(f"the next turn prefills all {tokens} tokens", "ds4.ok", on=self._err)

    def _stats(self, argument: str) -> None:
        total = self._conversation.total
        for line in (
            f"turns: {self._conversation.turns}",
            f"context: {len(self._conversation)} of {self._conversation.context} tokens",
            f"prefilled: {total.prefilled} tokens, reused: {total.reused}, generated: {total.generated}",
            total.line(),
        ):
            say(line, "ds4.timing", on=self._err)
