"""Files that cannot be trusted: never used, put away with one line, and the next best one is loaded."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from shared.errors import PayloadError
from shared.kv.files.cache_file import cache_name
from shared.kv.files.header import Reason
from shared.session import Session
from tests.support.stores import OpenStore, stored_texts
from tests.support.synthetic_session import SyntheticSession

TEXT = random.Random(5).randbytes(200)
SHORT, LONG, PROMPT = TEXT[:60], TEXT[:160], TEXT
NAME = cache_name(LONG)
TOKENS_AT = 52 + len(LONG) + 13 * 4


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A directory with a short and a long file of one conversation."""
    one = OpenStore(tmp_path)
    one.save(SHORT)
    one.save(LONG)
    one.store.close()
    return tmp_path


def _damage(folder: Path, change: Callable[[bytearray], object], *, sidecar: bool = True) -> None:
    path = folder / NAME
    content = bytearray(path.read_bytes())
    change(content)
    path.write_bytes(content)
    if not sidecar:
        (folder / f"{NAME}.sum").unlink()


def _flip(at: int) -> Callable[[bytearray], object]:
    def change(content: bytearray) -> None:
        content[at] ^= 0x10

    return change


def _put(at: int, value: bytes) -> Callable[[bytearray], object]:
    def change(content: bytearray) -> None:
        content[at : at + len(value)] = value

    return change


def _cut(to: int) -> Callable[[bytearray], object]:
    def change(content: bytearray) -> None:
        del content[to:]

    return change


def _is_put_away(folder: Path, lines: int = 1) -> None:
    """The next best file is loaded, the damaged one is in `bad/`, and nothing happens a second time."""
    one = OpenStore(folder)
    assert one.ask(PROMPT) == SHORT
    assert one.ask(PROMPT) == SHORT
    one.store.close()
    complaints = [line for line in one.said if not line.startswith("kv hit")]
    assert len(complaints) == lines
    assert complaints[0].endswith("; moved to bad/")
    assert NAME in complaints[0]
    assert (folder / "bad" / NAME).exists()
    assert not (folder / NAME).exists()
    assert not (folder / f"{NAME}.sum").exists()


@pytest.mark.parametrize("at", [52, 52 + len(LONG) - 1, TOKENS_AT + 4, TOKENS_AT + 4 * 160 + 9, -1])
def test_one_flipped_bit_in_text_or_payload(folder: Path, at: int) -> None:
    _damage(folder, _flip(at))
    _is_put_away(folder)


@pytest.mark.parametrize("at", [52, TOKENS_AT + 4], ids=["text", "token"])
def test_without_a_checksum_text_and_tokens_tell(folder: Path, at: int) -> None:
    _damage(folder, _flip(at), sidecar=False)
    _is_put_away(folder)


@pytest.mark.parametrize(
    "change",
    [_put(8, (159).to_bytes(4, "little")), _put(8, bytes(4)), _put(4, b"\x03"), _flip(40)],
    ids=["token count", "no tokens", "quant", "payload size"],
)
def test_a_header_that_cannot_be(folder: Path, change: Callable[[bytearray], object]) -> None:
    _damage(folder, change)
    _is_put_away(folder)


@pytest.mark.parametrize("to", [48, 51, 52, 100, 212, 213, 1000, -4, -1])
def test_cut_off(folder: Path, to: int) -> None:
    _damage(folder, _cut(to))
    _is_put_away(folder)


def test_lengths_without_end(folder: Path) -> None:
    _damage(folder, _put(40, (2**40).to_bytes(8, "little")))
    _is_put_away(folder)


def test_a_file_that_is_no_longer_ours_is_left_alone(folder: Path) -> None:
    for at in (0, 3, 20):
        _damage(folder, _flip(at))
        content = (folder / NAME).read_bytes()
        one = OpenStore(folder)
        assert one.ask(PROMPT) == SHORT
        one.store.close()
        assert one.lines("kv hit") == one.said
        assert (folder / NAME).read_bytes() == content
        _damage(folder, _flip(at))


def test_a_good_file_is_still_there_after_two_loads(folder: Path) -> None:
    one = OpenStore(folder, cold_max_tokens=100)  # however long it is
    assert one.ask(PROMPT) == LONG
    assert one.ask(PROMPT) == LONG
    one.store.close()
    assert stored_texts(folder) == {SHORT, LONG}


def test_a_state_that_breaks_the_engine_is_never_tried_again(folder: Path) -> None:
    one = OpenStore(folder)
    file = one.store.find(PROMPT, 512)[0]
    assert one.store.load(file, PROMPT, cast(Session, SyntheticSession()), lambda tokens, file: True)
    one.store.unusable(file)
    assert (folder / "bad" / NAME).exists()
    assert one.ask(PROMPT) == SHORT
    assert one.lines("kv discarded") == [
        f"kv discarded file={NAME}: prefill on top of it failed; moved to bad/"
    ]
    assert one.save(LONG).bytes > 0, "the same prefix, computed again, is written anew"
    assert one.ask(PROMPT) == LONG
    one.store.close()


def test_a_state_that_does_not_fit_this_session_stays_and_is_not_tried_twice(folder: Path) -> None:
    class Other(SyntheticSession):
        loads = 0

        def load(self, source: object, payload_bytes: int) -> None:
            type(self).loads += 1
            raise PayloadError("it was written for another model layout")

    one = OpenStore(folder)
    for _ in range(2):
        for file in one.store.find(PROMPT, 512):
            assert not one.store.load(file, PROMPT, cast(Session, Other()), lambda tokens, file: True)
    one.store.close()
    assert Other.loads == 2, "each file once"
    assert stored_texts(folder) == {SHORT, LONG}
    assert one.said[0].endswith("it was written for another model layout")


def test_damage_that_looks_like_a_misfit_is_damage_all_the_same(folder: Path) -> None:
    """A flipped layout word says that the payload is for another model; the checksum knows better."""
    _damage(folder, _flip(52 + len(LONG) + 9 * 4))
    _is_put_away(folder)


def test_a_damaged_file_gives_way_to_a_new_one(folder: Path) -> None:
    _damage(folder, _flip(52))
    one = OpenStore(folder)
    assert one.save(LONG, Reason.EVICT).bytes > 0
    assert one.ask(PROMPT) == LONG
    one.store.close()


def test_one_that_may_not_write_only_looks_away(folder: Path) -> None:
    writer = OpenStore(folder)
    _damage(folder, _flip(52))
    _damage(folder, _flip(-1))
    reader = OpenStore(folder)
    assert reader.ask(PROMPT) == SHORT
    assert reader.ask(PROMPT) == SHORT
    assert len(reader.lines("kv load failed")) == 1
    assert reader.said[0].endswith("; ignored from now on")
    reader.store.unusable(reader.store.find(PROMPT, 512)[0])
    assert reader.ask(PROMPT) == b""
    assert stored_texts(folder) >= {SHORT}
    assert not (folder / "bad").exists()
    for one in (reader, writer):
        one.store.close()


def test_what_a_reader_saw_damaged_is_put_away_when_it_becomes_the_writer(folder: Path) -> None:
    writer = OpenStore(folder)
    reader = OpenStore(folder)
    _damage(folder, _cut(1000))
    assert reader.ask(PROMPT) == SHORT
    assert reader.lines("kv ignored")
    writer.store.close()
    assert reader.save(b"x" * 50).stored
    assert (folder / "bad" / NAME).exists()
    reader.store.close()
