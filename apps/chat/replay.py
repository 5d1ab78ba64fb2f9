"""The last turns of a conversation that is taken up again, for the user to see where it stood.

Knows tokens and a console; nothing of sessions and of files. Spec: apps §4.8.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from apps.chat.reply_printer import printable
from apps.console import say
from shared.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from rich.console import Console

TURNS_SHOWN = 3
# Of a message its beginning, of an answer its end.
_USER_LINES, _USER_BYTES = 24, 6_000
_ANSWER_LINES, _ANSWER_BYTES = 80, 12_000
_CUT = "[...]"


@dataclass(frozen=True, slots=True)
class ShownTurn:
    """A user message and what was answered; thinking is left out."""

    message: str
    answer: str


def last_turns(tokens: Sequence[int], tokenizer: Tokenizer, count: int = TURNS_SHOWN) -> list[ShownTurn]:
    """The last `count` turns of a transcript, oldest first, cut to a length that a screen can take."""
    user = tokenizer.specials.user
    starts = [index for index, token in enumerate(tokens) if token == user][-count:]
    return [_turn(tokens[start + 1 : end], tokenizer) for start, end in pairwise([*starts, len(tokens)])]


def show_turns(turns: Sequence[ShownTurn], *, on: Console) -> None:
    """Print turns as a person reads them."""
    for turn in turns:
        say(f"> {turn.message}", "ds4.muted", on=on)
        if turn.answer:
            say(turn.answer, on=on)


def _turn(tokens: Sequence[int], tokenizer: Tokenizer) -> ShownTurn:
    marks = tokenizer.specials
    tokens = list(tokens)
    begin = tokens.index(marks.assistant) if marks.assistant in tokens else len(tokens)
    said = tokens[begin + 1 :]
    if marks.think_end in said:
        said = said[said.index(marks.think_end) + 1 :]
    elif marks.think in said:
        said = []  # it never came to an answer
    answer = _text([token for token in said if token != marks.eos], tokenizer)
    return ShownTurn(
        _beginning(_text(tokens[:begin], tokenizer), _USER_LINES, _USER_BYTES),
        _ending(answer, _ANSWER_LINES, _ANSWER_BYTES),
    )


def _text(tokens: Sequence[int], tokenizer: Tokenizer) -> str:
    return printable(tokenizer.decode(tokens).decode("utf-8", "replace")).strip()


def _beginning(text: str, lines: int, size: int) -> str:
    kept = "\n".join(text.split("\n")[:lines]).encode()[:size].decode("utf-8", "ignore")
    return kept if kept == text else f"{kept} {_CUT}"


def _ending(text: str, lines: int, size: int) -> str:
    kept = "\n".join(text.split("\n")[-lines:]).encode()[-size:].decode("utf-8", "ignore")
    return kept if kept == text else f"{_CUT} {kept}"
