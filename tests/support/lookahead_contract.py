"""The look-ahead contract, for every engine: however a turn ends, and wherever, look-ahead leaves the
session in exactly the state of a plain decode of the tokens that were kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from shared.generate import Generation, GenerationSettings
from shared.sampling import GREEDY, Sampling
from shared.session import Session
from shared.text.events import EndCause
from shared.text.tokenizer import Tokenizer
from tests.support.plain_turn import PlainTurn

OpenSession = Callable[[], Session]


class OtherEnd:
    """A tokenizer under which another token ends the turn."""

    def __init__(self, tokenizer: Tokenizer, end: int) -> None:
        self._tokenizer = tokenizer
        self.specials = replace(tokenizer.specials, eos=end)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tokenizer, name)


@dataclass(frozen=True)
class Outcome:
    """What a generation gave and what it left in the session."""

    generated: list[int]
    cause: EndCause
    timeline: list[int]
    logits: bytes
    snapshot: bytes


def generate(
    session: Session,
    tokenizer: Any,
    prompt: Sequence[int],
    *,
    look_ahead: bool,
    length: int,
    sampling: Sampling = GREEDY,
    stop: tuple[str, ...] = (),
    stop_after: int | None = None,
) -> Outcome:
    session.sync(prompt)
    settings = GenerationSettings(sampling, length, stop, seed=7, look_ahead=look_ahead)
    turn: Any = PlainTurn(stop_after=stop_after)
    generation = Generation(session, tokenizer, turn, settings)
    for _ in generation:
        pass
    return _outcome(session, generation.tokens, generation.cause)


def decode_plainly(
    session: Session, prompt: Sequence[int], tokens: Sequence[int], cause: EndCause
) -> Outcome:
    """The same tokens submitted one by one by their ids."""
    session.sync(prompt)
    for token in tokens:
        session.submit(token)
    return _outcome(session, list(tokens), cause)


def check_look_ahead(
    open_session: OpenSession,
    tokenizer: Tokenizer,
    prompt: Sequence[int],
    *,
    length: int = 8,
    sampling: Sampling = GREEDY,
) -> None:
    """Run a turn of `length` tokens to every position, ended there by the end token, a stop string, the
    end of a tool block and the budget, with look-ahead and without. Each run gets a session of its own
    from `open_session`, which must give the same tokens every time and may hold the prompt already."""
    whole = generate(open_session(), tokenizer, prompt, look_ahead=False, length=length, sampling=sampling)
    assert len(whole.generated) == length, "the engine must not end the turn by itself"
    plain = [
        decode_plainly(open_session(), prompt, whole.generated[:count], "length")
        for count in range(length + 1)
    ]

    def check(tokenizer: Any, expected: EndCause, budget: int, **ends: Any) -> Outcome:
        ahead, behind = (
            generate(
                open_session(),
                tokenizer,
                prompt,
                look_ahead=look_ahead,
                length=budget,
                sampling=sampling,
                **ends,
            )
            for look_ahead in (True, False)
        )
        assert ahead == behind
        assert ahead == replace(plain[len(ahead.generated)], cause=expected)
        assert ahead.timeline == [*prompt, *ahead.generated]
        return ahead

    for position, token in enumerate(whole.generated):
        ended = check(OtherEnd(tokenizer, token), "eos", length)
        assert ended.generated == whole.generated[: whole.generated.index(token)]
        data = tokenizer.token_bytes(token)
        if data and data == data.decode("utf-8", "replace").encode():
            ended = check(tokenizer, "stop", length, stop=(data.decode(),))
            assert len(ended.generated) <= position + 1
        ended = check(tokenizer, "tool", length, stop_after=position + 1)
        ended = check(tokenizer, "length", position)
        assert len(ended.generated) == position


def _outcome(session: Session, generated: list[int], cause: EndCause) -> Outcome:
    return Outcome(generated, cause, session.tokens, session.logits().tobytes(), session.snapshot())
