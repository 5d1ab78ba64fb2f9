"""The one prompt of a run without conversation: where it comes from and the tokens it becomes.

Knows files and the tokenizer; nothing of engines.
"""

from __future__ import annotations

import json
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from shared.errors import UsageError
from shared.text import marks
from shared.text.effort import Effort
from shared.text.tokenizer import Specials, Tokenizer
from shared.text.transcript import Transcript
from shared.text.utf8 import to_bytes

LONGEST_FILE = 256 << 20
_BOS = to_bytes(marks.BOS)


@dataclass(frozen=True, slots=True)
class Prompt:
    """Either `text` as the user gave it, or exact `tokens`."""

    text: bytes = b""
    tokens: tuple[int, ...] | None = None

    def encode(self, tokenizer: Tokenizer, *, system: str, effort: Effort, profile: str) -> list[int]:
        """Tokens to prefill. Text that starts with the begin mark is a rendered transcript and is taken
        as it is; other text becomes the user message behind the system text."""
        if self.tokens is not None:
            return _checked(self.tokens, tokenizer.vocabulary_size)
        if self.text.startswith(_BOS):
            return tokenizer.encode_rendered(self.text)
        transcript = Transcript(tokenizer, effort=effort, profile=profile, system=system)
        transcript.add_user(self.text.decode("utf-8", "replace"))
        transcript.begin_answer()
        return transcript.tokens

    def as_written(self, tokenizer: Tokenizer) -> list[int]:
        """Tokens of the bare text with control strings recognised and nothing added."""
        if self.tokens is not None:
            return _checked(self.tokens, tokenizer.vocabulary_size)
        return tokenizer.encode_rendered(self.text)

    def as_text(self, tokenizer: Tokenizer) -> list[int]:
        """Tokens of the bare text, control strings being text like any other."""
        if self.tokens is not None:
            return _checked(self.tokens, tokenizer.vocabulary_size)
        return tokenizer.encode_text(self.text)


def read_prompt(
    text: str | None, text_file: Path | None, tokens_file: Path | None, piped: BinaryIO | None
) -> Prompt | None:
    """The prompt of the one source that was given; None if there is none. `piped` is standard input when
    it is no terminal, read only if no option names a prompt. Raises UsageError for two sources, an empty
    or an unreadable one."""
    given = {"-p": text, "--prompt-file": text_file, "--prompt-tokens": tokens_file}
    named = [name for name, value in given.items() if value is not None]
    if len(named) > 1:
        raise UsageError(f"{' and '.join(named)} both give a prompt: use one of them")
    if tokens_file is not None:
        return Prompt(tokens=_read_tokens(tokens_file))
    if text_file is not None:
        content = read_file(text_file)
    elif text is not None:
        content = to_bytes(text)
    elif piped is not None:
        # A shell's `echo` ends the text with a newline that nobody typed.
        content = piped.read(LONGEST_FILE + 1).removesuffix(b"\n")
        if len(content) > LONGEST_FILE:
            raise UsageError(f"standard input is larger than {LONGEST_FILE >> 20} MiB")
        named = ["standard input (no terminal and no -p)"]
    else:
        return None
    if not content:
        raise UsageError(f"the prompt of {named[0]} is empty")
    return Prompt(text=content)


def read_file(path: Path) -> bytes:
    """The contents of a regular file or a pipe, of at most LONGEST_FILE bytes. Raises UsageError."""
    try:
        with path.open("rb") as file:
            if stat.S_ISCHR(path.stat().st_mode):
                raise UsageError(f"cannot read {path}: it is a device, not a file")
            content = file.read(LONGEST_FILE + 1)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from None
    if len(content) > LONGEST_FILE:
        raise UsageError(f"cannot read {path}: it is larger than {LONGEST_FILE >> 20} MiB")
    return content


def thinking_open(tokens: Sequence[int], specials: Specials) -> bool:
    """True if a prompt leaves the model inside its thinking: the last think mark opens it."""
    for token in reversed(tokens):
        if token == specials.think:
            return True
        if token in (specials.think_end, specials.assistant, specials.user):
            return False
    return False


def _read_tokens(path: Path) -> tuple[int, ...]:
    try:
        ids = json.loads(read_file(path))
    except (ValueError, RecursionError):
        ids = None
    if not isinstance(ids, list) or not ids:
        raise UsageError(f"--prompt-tokens {path}: expected a JSON array of token ids")
    for index, token in enumerate(ids):
        if type(token) is not int:
            raise UsageError(f"--prompt-tokens {path}: entry {index} is not a token id")
    return tuple(ids)


def _checked(tokens: Sequence[int], vocabulary_size: int) -> list[int]:
    for index, token in enumerate(tokens):
        if not 0 <= token < vocabulary_size:
            raise UsageError(
                f"--prompt-tokens: entry {index} is {token}, but the vocabulary has ids 0 to "
                f"{vocabulary_size - 1}"
            )
    return list(tokens)
