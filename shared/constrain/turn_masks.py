"""The masks of one turn: where in it which form holds.

Thinking is free, except that the model cannot end its turn in it; the form begins with the first token behind
`</think>`. Knows no sampling and no endpoint.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final, Protocol

from shared.constrain.call_opener import CallOpener
from shared.constrain.matcher import Matcher
from shared.constrain.vocabulary import Mask, MaskVocabulary
from shared.text import marks
from shared.token_choice import TurnState

_THINK_END: Final = marks.THINK_END.encode()


@dataclass(frozen=True, slots=True)
class AnswerForm:
    """What an answer must be: JSON, whose matcher stays at the beginning, a call, or, with both and the call
    not `required`, either of them. A required call leaves no room for JSON in the same turn."""

    vocabulary: MaskVocabulary
    think_end: int
    json: Matcher | None = None
    call: CallOpener | None = None
    call_required: bool = False

    def begin(self, *, thinking: bool) -> TurnMasks:
        """The masks of one attempt at an answer."""
        return TurnMasks(self, thinking=thinking)


class TurnMasks:
    """Ask `allowed` before each token, tell `take` after it. Raises EngineFault where a grammar outgrows the
    limits of the grammar engine."""

    def __init__(self, form: AnswerForm, *, thinking: bool) -> None:
        self._form = form
        self._vocabulary = form.vocabulary
        self._answer = _answer(form)
        self._thinking = thinking
        self._tail = b""  # the end of the thinking so far, if `</think>` may begin in it

    def allowed(self, turn: TurnState) -> Mask | None:
        """The tokens that may come next, at least one; None if all may."""
        if not self._thinking:
            return self._answer.allowed()
        thinking = self._vocabulary.while_thinking(self._tail)
        if not turn.held_call:
            return thinking
        # A whole call stands in thinking that is still open, and the turn may end with it: but not where a
        # call is required, because it may be of another tool.
        if self._form.call_required:
            return self._vocabulary.only(self._form.think_end)
        return thinking | self._vocabulary.only(self._vocabulary.end)

    def take(self, token: int) -> None:
        """`token`, one of the allowed ones, came next."""
        if self._thinking:
            self._think(self._vocabulary.token_bytes(token))
        else:
            self._answer.take(token)

    def _think(self, data: bytes) -> None:
        seen = self._tail + data
        self._thinking = not seen.endswith(_THINK_END)
        longest = min(len(seen), len(_THINK_END) - 1)
        self._tail = next((seen[-n:] for n in range(longest, 0, -1) if _THINK_END.startswith(seen[-n:])), b"")


class _Answer(Protocol):
    """The part of a turn behind its thinking."""

    def allowed(self) -> Mask | None: ...

    def take(self, token: int) -> None: ...


def _answer(form: AnswerForm) -> _Answer:
    json = None if form.json is None or form.call_required else form.json.copy()
    call = None if form.call is None else _Call(form.vocabulary, form.call)
    if json is not None and call is not None:
        return _Either(json, call)
    answer = call if json is None else json
    if answer is None:
        raise ValueError("an answer has a form only with a grammar or a call")
    return answer


class _Call:
    """The opener token by token, one of the names, and then whatever the model writes."""

    def __init__(self, vocabulary: MaskVocabulary, opener: CallOpener) -> None:
        self._vocabulary = vocabulary
        self._opener = deque(opener.tokens)
        self._names = None if opener.names is None else Matcher(vocabulary, opener.names)

    @property
    def first(self) -> int:
        return self._opener[0]

    def allowed(self) -> Mask | None:
        if self._opener:
            return self._vocabulary.only(self._opener[0])
        return None if self._names is None else self._names.allowed()

    def take(self, token: int) -> None:
        if self._opener:
            self._opener.popleft()
        elif self._names is not None:
            self._names.take(token)
            if self._names.complete:
                self._names = None


class _Either:
    """JSON or a call: the first token decides."""

    def __init__(self, json: Matcher, call: _Call) -> None:
        self._json = json
        self._call = call
        self._chosen: _Answer | None = None

    def allowed(self) -> Mask | None:
        if self._chosen is not None:
            return self._chosen.allowed()
        mask = self._json.allowed()
        mask[self._call.first] = True
        return mask

    def take(self, token: int) -> None:
        if self._chosen is None:
            self._chosen = self._call if token == self._call.first else self._json
        self._chosen.take(token)
