"""The text that importances are collected from, and the reading of it. Spec: model §7, apps §8.2.

Must not know: how importances are summed up, engines.
"""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from shared.errors import UsageError
from shared.session import CancelCheck, Progress, Session
from shared.text.tokenizer import Tokenizer

# A line that begins so stands before each prompt; the rest of it may say anything.
MARKER = b"===== DS4_IMATRIX_PROMPT"

# Called with (prompts done, tokens done) when a prompt begins, after each prefill step, and after the last.
ReadingProgress = Callable[[int, int], None]


@dataclass(slots=True)
class Reading:
    """What was read: `cut` of the `prompts` were too long for the context or for the limit of tokens."""

    prompts: int = 0
    tokens: int = 0
    cut: int = 0


def read_prompts(path: Path) -> list[bytes]:
    """The rendered transcripts in a file, without white space around them. Text before the first marker is
    left out, and so are empty prompts; a file without markers is one prompt. Raises UsageError."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read the dataset {path}: {error.strerror or error}") from None
    prompts: list[list[bytes]] = [[]]
    for line in content.removeprefix(BOM_UTF8).split(b"\n"):
        if line.startswith(MARKER):
            prompts.append([])
        else:
            prompts[-1].append(line)
    texts = (b"\n".join(lines).strip() for lines in (prompts[1:] or prompts))
    if found := [text for text in texts if text]:
        return found
    raise UsageError(f"the dataset {path} holds no prompt")


def read_all(
    session: Session,
    tokenizer: Tokenizer,
    prompts: Iterable[bytes],
    *,
    max_tokens: int | None,
    told: ReadingProgress,
    cancelled: CancelCheck,
) -> Reading:
    """Evaluate each prompt from an empty timeline: as much of it as the session's context has room for, and
    as is left of `max_tokens` in all. Raises Cancelled, EngineFault."""
    done = Reading()
    for prompt in prompts:
        room = session.context - 1  # a session wants one more place than a prompt has tokens
        if max_tokens is not None:
            room = min(room, max_tokens - done.tokens)
        if room < 1:
            break
        tokens = tokenizer.encode_rendered(prompt)
        session.invalidate()  # else the beginning that it shares with the last one would not be seen
        session.sync(tokens[:room], _behind(done, told), cancelled=cancelled)
        done.prompts += 1
        done.tokens += min(len(tokens), room)
        done.cut += len(tokens) > room
    told(done.prompts, done.tokens)
    return done


def _behind(done: Reading, told: ReadingProgress) -> Progress:
    """Tells of a prompt that comes after what is `done`."""
    prompts, tokens = done.prompts, done.tokens
    return lambda now, total: told(prompts, tokens + now)
