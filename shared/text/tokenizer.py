"""Text to token ids and back, over a vocabulary read from a model file.

Owns the byte-level BPE with DeepSeek's published pre-tokeniser and the lookup of control tokens. Knows
nothing of files, chats or models.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

from shared.errors import ModelFileError
from shared.text import marks
from shared.text.byte_alphabet import ALPHABET, unspell
from shared.text.segments import Segment, SegmentKind, join
from shared.text.utf8 import to_bytes

if TYPE_CHECKING:
    from tokenizers import Tokenizer as BpeTokenizer

# DeepSeek's published pre-tokeniser: each rule splits the pieces that the one before left.
_SPLITS: Final = (
    r"\p{N}{1,3}",
    "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"""
    r"|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    r"| ?[\p{P}\p{S}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+",
)

# The fullwidth bar marks control tokens: their strings are literal text, not the byte alphabet.
_FULLWIDTH_BAR: Final = "\uff5c"

# A hostile file can have millions of wrong merges: no one reads that many lines.
_MOST_MERGE_PROBLEMS: Final = 100

# Input is fed in blocks of about this many characters, so that memory stays bounded.
_BLOCK: Final = 1 << 16
# Places where the rules above end a piece whatever surrounds them: cutting there changes nothing.
_SAFE_CUT: Final = re.compile(
    r"(?<=\n)(?=\S)"
    r"|(?<=[A-Za-z])(?=[\x00-@\[-`{-\x7f])"
    r"|(?<=[0-9])(?=[\x00-/:-\x7f])"
    "|(?<=[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff])(?=[^\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff])"
)
# What "surrogateescape" makes of bytes that are not UTF-8.
_INVALID: Final = re.compile("[\udc80-\udcff]+")


@dataclass(frozen=True, slots=True)
class Specials:
    """Ids of the control tokens, found by their strings; `reminder` is None if the vocabulary lacks it."""

    bos: int
    eos: int
    user: int
    assistant: int
    think: int
    think_end: int
    dsml: int
    reminder: int | None


class _KnownTokens(dict[int, bytes]):
    """The bytes of the tokens that were met so far: whole conversations are decoded again and again."""

    def __init__(self, token_bytes: Callable[[int], bytes], count: int) -> None:
        super().__init__()
        self._token_bytes = token_bytes
        self._count = count

    def __missing__(self, token: int) -> bytes:
        content = self._token_bytes(token)
        if 0 <= token < self._count:
            self[token] = content
        return content


class Tokenizer:
    """Byte-exact: `decode(encode_text(x)) == x` for any bytes. Built lazily, safe to share by threads."""

    def __init__(self, tokens: Sequence[str], merges: Sequence[str], ids: dict[str, int]) -> None:
        self._tokens = tokens
        self._merges = merges
        self._ids = ids
        self._control = {to_bytes(mark): ids[mark] for mark in marks.REQUIRED}
        reminder = ids.get(marks.REMINDER)
        self.specials = Specials(
            bos=ids[marks.BOS],
            eos=ids[marks.EOS],
            user=ids[marks.USER],
            assistant=ids[marks.ASSISTANT],
            think=ids[marks.THINK],
            think_end=ids[marks.THINK_END],
            dsml=ids[marks.DSML],
            reminder=reminder,
        )
        self._known = _KnownTokens(self.token_bytes, len(tokens))
        self._rendered_pattern = _any_of(self._control)
        if reminder is not None:
            self._control[to_bytes(marks.REMINDER)] = reminder
        self._segment_pattern = _any_of(self._control)

    @classmethod
    def from_vocabulary(cls, tokens: Sequence[str], merges: Sequence[str]) -> Tokenizer:
        """From `tokenizer.ggml.tokens` (index = id) and `.merges` ("left right", index = rank).

        Raises ModelFileError listing every missing control token and byte, and wrong merges.
        """
        # Of equal strings the first id counts.
        ids = dict(zip(reversed(tokens), range(len(tokens) - 1, -1, -1), strict=True))
        problems = [f"the vocabulary lacks the token {mark}" for mark in marks.REQUIRED if mark not in ids]
        problems += [f"the vocabulary lacks byte {b:#04x}" for b, c in enumerate(ALPHABET) if c not in ids]
        problems += _merge_problems(merges, ids)
        try:
            "".join(tokens).encode("utf-8")
        except UnicodeEncodeError:
            problems.append("the vocabulary holds text that is not UTF-8")
        if problems:
            raise ModelFileError(
                f"the tokenizer of the model file is unusable: {problems[0]}"
                + (f" (and {len(problems) - 1} more problems)" if len(problems) > 1 else ""),
                problems,
            )
        return cls(tokens, merges, ids)

    @property
    def vocabulary_size(self) -> int:
        """Number of token ids."""
        return len(self._tokens)

    def encode_text(self, text: str | bytes) -> list[int]:
        """Ids of `text` with no control token recognised; bytes that are not UTF-8 become byte tokens."""
        data = text if isinstance(text, bytes) else to_bytes(text)
        escaped = data.decode("utf-8", "surrogateescape")
        ids: list[int] = []
        start = 0
        for invalid in _INVALID.finditer(escaped):
            self._encode_valid(escaped[start : invalid.start()], ids)
            ids.extend(self._byte_ids[ord(c) - 0xDC00] for c in invalid.group())
            start = invalid.end()
        self._encode_valid(escaped[start:] if start else escaped, ids)
        return ids

    def encode_rendered(self, text: str | bytes) -> list[int]:
        """Ids of `text` with the seven required control strings recognised wherever they stand."""
        data = text if isinstance(text, bytes) else to_bytes(text)
        return self._encode_around(
            data, ((m.start(), m.end()) for m in self._rendered_pattern.finditer(data))
        )

    def encode_segments(self, segments: Sequence[Segment]) -> list[int]:
        """Ids of a rendered prompt or of a suffix cut from one.

        A control string counts only if it lies wholly inside one CONTROL or EXACT segment. What stands
        between control tokens is joined across segment borders and tokenised whole.
        """
        return self._encode_around(join(segments), self._control_spans(segments))

    def token_bytes(self, token: int) -> bytes:
        """The bytes a token stands for; empty if there is no such token."""
        if not 0 <= token < len(self._tokens):
            return b""
        spelling = self._tokens[token]
        return to_bytes(spelling) if _FULLWIDTH_BAR in spelling else unspell(spelling)

    def decode(self, tokens: Iterable[int]) -> bytes:
        """The joined bytes of `tokens`."""
        return b"".join(map(self._known.__getitem__, tokens))

    def piece(self, token: int) -> str:
        """The vocabulary string of a token; empty if there is no such token."""
        return self._tokens[token] if 0 <= token < len(self._tokens) else ""

    def _control_spans(self, segments: Sequence[Segment]) -> Iterator[tuple[int, int]]:
        offset = 0
        for segment in segments:
            if segment.kind is not SegmentKind.TEXT:
                for match in self._segment_pattern.finditer(segment.data):
                    yield offset + match.start(), offset + match.end()
            offset += len(segment.data)

    def _encode_around(self, data: bytes, control_spans: Iterable[tuple[int, int]]) -> list[int]:
        ids: list[int] = []
        position = 0
        for start, end in control_spans:
            if start > position:
                ids += self.encode_text(data[position:start])
            ids.append(self._control[data[start:end]])
            position = end
        if position < len(data):
            ids += self.encode_text(data[position:])
        return ids

    def _encode_valid(self, text: str, ids: list[int]) -> None:
        for block in _blocks(text):
            ids += self._bpe.encode(block, add_special_tokens=False).ids

    @cached_property
    def _byte_ids(self) -> list[int]:
        return [self._ids[letter] for letter in ALPHABET]

    @cached_property
    def _bpe(self) -> BpeTokenizer:
        from tokenizers import Regex, models, pre_tokenizers
        from tokenizers import Tokenizer as BpeTokenizer

        pairs = [(left, right) for left, _, right in (merge.partition(" ") for merge in self._merges)]
        bpe = BpeTokenizer(models.BPE(self._ids, pairs))
        bpe.pre_tokenizer = pre_tokenizers.Sequence(
            [
                *(pre_tokenizers.Split(Regex(split), "isolated") for split in _SPLITS),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )
        return bpe


def _any_of(strings: Iterable[bytes]) -> re.Pattern[bytes]:
    return re.compile(b"|".join(map(re.escape, strings)))


def _merge_problems(merges: Sequence[str], ids: dict[str, int]) -> list[str]:
    problems = []
    for rank, merge in enumerate(merges):
        left, space, right = merge.partition(" ")
        if not (space and left in ids and right in ids and left + right in ids):
            problems.append(f"merge {rank} is not made of tokens of the vocabulary: {merge[:80]!r}")
            if len(problems) == _MOST_MERGE_PROBLEMS:
                break
    return problems


def _blocks(text: str) -> Iterator[str]:
    start = 0
    while len(text) - start > _BLOCK:
        safe = _SAFE_CUT.search(text, start + _BLOCK)
        if safe is None:
            break
        yield text[start : safe.start()]
        start = safe.start()
    if start < len(text):
        yield text[start:] if start else text
