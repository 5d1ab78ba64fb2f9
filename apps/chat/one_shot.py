"""One prompt, one answer, exit. Knows no commands and no conversation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from apps.chat.answer import Answerer, ending_note
from apps.chat.interrupt import Interrupt
from apps.chat.settings import ChatSettings
from apps.chat.turn_trace import turn_fields
from apps.console import say
from apps.prompt import Prompt, thinking_open
from apps.trace import Trace
from shared.errors import Cancelled
from shared.session import Engine

if TYPE_CHECKING:
    from rich.console import Console


def answer_once(
    engine: Engine, prompt: Prompt, settings: ChatSettings, answerer: Answerer, *, err: Console, trace: Trace
) -> None:
    """Answer `prompt`. Raises Cancelled on Ctrl+C, after what was generated has been shown."""
    tokenizer = engine.tokenizer
    tokens = prompt.encode(
        tokenizer, system=settings.system, effort=settings.effort, profile=engine.effort_profile
    )
    session = engine.open_session(settings.context)
    try:
        with Interrupt() as interrupt:
            answer = answerer.answer(
                session,
                tokens,
                settings,
                thinking=thinking_open(tokens, tokenizer.specials),
                seed=settings.seed_of_turn(0),
                cancelled=interrupt,
            )
    finally:
        session.close()
    trace.write("turn", **turn_fields(tokens, answer, tokenizer))
    if note := ending_note(answer, settings, settings.context):
        say(note, "ds4.warning", on=err)
    say(answer.statistics.line(), "ds4.timing", on=err)
    if answer.cause == "cancelled":
        raise Cancelled
