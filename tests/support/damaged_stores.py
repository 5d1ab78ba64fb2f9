"""A store with a short and a long file of one conversation, the long one damaged in a chosen way.

Judges what a program that asks for the conversation gets: see `Outcome`.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import cast

from shared.kv.files.cache_file import cache_name
from shared.kv.files.header import Reason
from shared.kv.store.policy import StoreSettings
from shared.kv.store.store import Key, KvStore
from shared.session import Session
from tests.support.stores import MODEL, load_best
from tests.support.synthetic_session import SMALL, SyntheticSession, state_of, text_of

CONTEXT = 512
CONVERSATION = random.Random(7).randbytes(330)
SHORT, LONG = CONVERSATION[:140], CONVERSATION[:300]
PROMPT = CONVERSATION[:320]
NAME = cache_name(LONG)
TEXT_AT = 52
PAYLOAD_AT = TEXT_AT + len(LONG)
IDS_AT = PAYLOAD_AT + 13 * 4
CALLS = {"call_00112233445566778899aabbccddeeff": b"<tool_calls></tool_calls>"}


def open_store(directory: Path, say: Callable[[str], None]) -> KvStore:
    settings = StoreSettings(min_tokens=16, durable=False)
    return KvStore(directory, MODEL, settings, say=say, decode=text_of)


@cache
def original() -> dict[str, bytes]:
    """The sound directory: every file's content by its name."""
    with TemporaryDirectory() as folder:
        store = open_store(Path(folder), lambda line: None)
        for text, calls in ((SHORT, {}), (LONG, CALLS)):
            session = cast(Session, SyntheticSession(CONTEXT).become(text))
            assert store.save(session, Key(text), Reason.COLD, tool_map=calls).stored
        store.close()
        return {path.name: path.read_bytes() for path in Path(folder).iterdir() if path.is_file()}


@dataclass(frozen=True, slots=True)
class Outcome:
    """`loaded`: the length in tokens of what was loaded. `genuine`: it is, number by number, the state that
    its tokens call for. `fate` of the damaged file: "kept" as it was, "touched", "bad" (moved there) or
    "gone"."""

    loaded: int
    genuine: bool
    fate: str
    said: tuple[str, ...]


def ask(directory: Path, damaged: bytes) -> Outcome:
    """Ask for the conversation twice, as a program does: the same comes back, and what failed is not tried
    again."""
    said: list[str] = []
    store = open_store(directory, said.append)
    loaded, genuine = _load_best(store)
    failures = sum("failed" in line for line in said)
    assert _load_best(store) == (loaded, genuine)
    assert sum("failed" in line for line in said) == failures <= 1, said
    store.close()
    return Outcome(loaded, genuine, _fate(directory, damaged), tuple(said))


def _load_best(store: KvStore) -> tuple[int, bool]:
    """The length of the first candidate that loads, and whether it is genuine; (0, True) if none does."""
    session = load_best(store, PROMPT, CONTEXT)
    return (0, True) if session is None else (session.position, session.is_genuine())


def _fate(directory: Path, damaged: bytes) -> str:
    if (directory / "bad" / NAME).exists():
        return "bad"
    try:
        content = (directory / NAME).read_bytes()
    except FileNotFoundError:
        return "gone"
    return "kept" if content == damaged else "touched"


def outcome_of(damaged: bytes, *, sidecar: bool = True) -> Outcome:
    """What comes of it when the long file holds `damaged`, and of the next start after it."""
    with TemporaryDirectory() as folder:
        directory = Path(folder)
        for name, content in original().items():
            (directory / name).write_bytes(damaged if name == NAME else content)
        if not sidecar:
            (directory / f"{NAME}.sum").unlink()
        first = ask(directory, damaged)
        second = ask(directory, damaged)
        assert second.loaded == first.loaded
        assert second.genuine == first.genuine
        if first.fate == "bad":
            assert not any(NAME in line for line in second.said), "what is in bad/ is not tried again"
        return first


def flipped(at: int, mask: int = 0xFF) -> bytes:
    """The long file with the bits of `mask` inverted in the byte at `at`."""
    content = bytearray(original()[NAME])
    content[at] ^= mask
    return bytes(content)


def section_edges() -> list[int]:
    """Offsets in the long file at which a part ends, in order: the header, the lengths, every tensor."""
    state = state_of(LONG, SMALL, CONTEXT)
    sizes = [48, 4, len(LONG), 13 * 4, 4 * len(LONG), state.logits.nbytes]
    sizes += [4 * len(state.layers)] * 2
    for layer in state.layers:
        sizes += [tensor.nbytes for field in layer.__slots__ if (tensor := getattr(layer, field)) is not None]
    edges = [0]
    for size in sizes:
        edges.append(edges[-1] + size)
    return edges
