"""Judges the bytes of a cache file by the description of the format alone, without our own reader.

Every table of the description is walked here once more, by hand. Spec: kv §1, §2, §3, §10.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator, Sequence

import numpy as np

_COLD_TO_SESSION = range(7)
_KNOWN_FLAGS = 0b1111


def check_cache_bytes(content: bytes, name: str, ratios: Sequence[int] | None = None) -> list[str]:
    """What is wrong with a cache file of this name; empty when nothing is.

    With the compression `ratios` of the writer's layers the payload is walked too.
    """
    if len(content) < 52:
        return [f"{len(content)} bytes are too few for a header and a text length"]
    problems = list(_header(content))
    (tokens,) = struct.unpack_from("<I", content, 8)
    (context,) = struct.unpack_from("<I", content, 16)
    (payload_bytes,) = struct.unpack_from("<Q", content, 40)
    (text_bytes,) = struct.unpack_from("<I", content, 48)
    payload_at = 52 + text_bytes
    trailer_at = payload_at + payload_bytes
    if trailer_at > len(content):
        return [*problems, f"text and payload end at {trailer_at}, the file at {len(content)}"]
    text, payload, trailer = content[52:payload_at], content[payload_at:trailer_at], content[trailer_at:]
    problems += _trailer(content[6], trailer)
    problems += _name(content, text, trailer, name)
    if ratios is not None and payload_bytes:
        problems += _payload(payload, ratios, tokens, context)
    return problems


def _header(content: bytes) -> Iterator[str]:
    magic, version, quant, reason, flags, model = struct.unpack_from("<3sBBBBB", content)
    tokens, _, context, abi = struct.unpack_from("<IIIB", content, 8)
    created, used = struct.unpack_from("<QQ", content, 24)
    if magic != b"KVC":
        yield f"magic {magic!r}"
    if version != 1:
        yield f"file version {version}"
    if quant not in (2, 4):
        yield f"quant bits {quant}"
    if reason not in _COLD_TO_SESSION:
        yield f"reason {reason}"
    if flags & ~_KNOWN_FLAGS:
        yield f"unknown flags {flags:#x}"
    if flags & 1 and flags & 8:
        yield "a tool map and a title"
    if model not in (0, 1):
        yield f"model id {model}"
    if not 0 < tokens <= context:
        yield f"{tokens} tokens in a context of {context}"
    if abi != 2:
        yield f"payload ABI {abi}"
    if content[21:24] != bytes(3):
        yield "reserved bytes in use"
    if used < created:
        yield "used before it was created"


def _name(content: bytes, text: bytes, trailer: bytes, name: str) -> Iterator[str]:
    reason, flags = content[5], content[6]
    if reason == 5:
        expected = "sysprompt.kv"
    elif reason == 6 and flags & 8:
        expected = hashlib.sha1(trailer[4:] + content[24:32]).hexdigest() + ".kv"
    else:
        expected = hashlib.sha1(text).hexdigest() + ".kv"
    if name != expected:
        yield f"named {name} instead of {expected}"


def _trailer(flags: int, trailer: bytes) -> Iterator[str]:
    if flags & 1:
        yield from _tool_map(trailer)
    elif flags & 8:
        if len(trailer) < 4 or len(trailer) != 4 + struct.unpack_from("<I", trailer)[0]:
            yield "the title's length is wrong"
    elif trailer:
        yield f"{len(trailer)} bytes after the payload that no flag announces"


def _tool_map(trailer: bytes) -> Iterator[str]:
    if len(trailer) < 8 or trailer[:4] != b"KTM\x01":
        yield "the tool map has no head"
        return
    (count,) = struct.unpack_from("<I", trailer, 4)
    if not count:
        yield "an empty tool map"
    at = 8
    for entry in range(count):
        if at + 8 > len(trailer):
            yield f"the tool map is cut off at entry {entry}"
            return
        id_bytes, block_bytes = struct.unpack_from("<II", trailer, at)
        if not 1 <= id_bytes <= 256 or not 1 <= block_bytes <= 512 << 20:
            yield f"tool map entry {entry} has the lengths {id_bytes} and {block_bytes}"
        at += 8 + id_bytes + block_bytes
    if at != len(trailer):
        yield f"the tool map ends at {at} of {len(trailer)} bytes"


def payload_bytes_by_formula(
    tokens: int, ratios: Sequence[int], head_dim: int, index_dim: int, vocabulary: int, window: int
) -> int:
    """The payload's size, from the closed formula. Spec: kv §2.3."""
    size = 52 + 4 * tokens + 4 * vocabulary + 8 * len(ratios)
    for ratio in ratios:
        size += 4 * min(tokens, window) * head_dim
        halves = 2 if ratio == 4 else 1
        if ratio:
            size += 4 * (tokens // ratio) * head_dim + 2 * 4 * halves**2 * head_dim * ratio
        if ratio == 4:
            size += 4 * (tokens // 4) * index_dim + 2 * 4 * 8 * 2 * index_dim
    return size


def _payload(payload: bytes, ratios: Sequence[int], tokens: int, context: int) -> Iterator[str]:
    if len(payload) < 52:
        yield "the payload has no word header"
        return
    words = struct.unpack_from("<13I", payload)
    window = max(1, min(128, context))
    yield from _words(words, ratios, tokens, context, window)
    head_dim, index_dim, vocabulary = words[9:12]
    size = payload_bytes_by_formula(tokens, ratios, head_dim, index_dim, vocabulary, window)
    if size != len(payload):
        yield f"the payload has {len(payload)} bytes, the formula says {size}"
        return
    ids = np.frombuffer(payload, "<u4", tokens, 52)
    if (ids >= vocabulary).any():
        yield "a token outside the vocabulary"
    at = 52 + 4 * tokens
    if not np.isfinite(np.frombuffer(payload, "<f4", vocabulary, at)).all():
        yield "logits that are not finite"
    at += 4 * vocabulary
    counts = struct.unpack_from(f"<{2 * len(ratios)}I", payload, at)
    if list(counts[: len(ratios)]) != [tokens // ratio if ratio else 0 for ratio in ratios]:
        yield f"compressed row counts {counts[: len(ratios)]}"
    if list(counts[len(ratios) :]) != [tokens // 4 if ratio == 4 else 0 for ratio in ratios]:
        yield f"indexer row counts {counts[len(ratios) :]}"
    yield from _tensors(payload, at + 8 * len(ratios), ratios, words)


def _words(
    words: Sequence[int], ratios: Sequence[int], tokens: int, context: int, window: int
) -> Iterator[str]:
    expected = {
        0: 0x34565344,
        1: 2,
        2: context,
        5: window,
        6: context // 4 + 2,
        7: tokens,
        8: len(ratios),
        12: min(tokens, window),
    }
    for index, value in expected.items():
        if words[index] != value:
            yield f"payload word {index} is {words[index]}, not {value}"
    if not words[3]:
        yield "a prefill chunk of 0"
    if words[4] < max(1, words[12]):
        yield f"a ring of {words[4]} rows cannot hold {words[12]}"


def _tensors(payload: bytes, at: int, ratios: Sequence[int], words: Sequence[int]) -> Iterator[str]:
    tokens, head_dim, index_dim, raw_rows = words[7], words[9], words[10], words[12]
    for layer, ratio in enumerate(ratios):
        halves = 2 if ratio == 4 else 1
        frontier = halves * ratio * halves * head_dim
        parts = [("raw rows", raw_rows * head_dim)]
        if ratio:
            parts += [("compressed rows", tokens // ratio * head_dim)]
            parts += [("frontier", frontier), ("frontier score", frontier)]
        if ratio == 4:
            parts += [("indexer rows", tokens // 4 * index_dim)]
            parts += [("indexer frontier", 16 * index_dim), ("indexer frontier score", 16 * index_dim)]
        for part, floats in parts:
            values = np.frombuffer(payload, "<f4", floats, at)
            # A writer puts -1e30, never minus infinity, where there is no row.
            if not np.isfinite(values).all():
                yield f"layer {layer}: {part} that are not finite"
            at += 4 * floats
    if at != len(payload):
        yield f"the payload's tensors end at {at} of {len(payload)} bytes"
