"""Tool calls that files remember: written beside a state, added later, found by their ids."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from shared.kv.files.cache_file import cache_name
from shared.kv.files.cache_reader import CacheReader
from shared.kv.store import tool_index as tool_index_module
from shared.kv.store.outcomes import ToolMap
from shared.session import Session
from tests.support.cache_builder import put_cache_file, tool_map
from tests.support.stores import OpenStore
from tests.support.synthetic_session import SyntheticSession

A, B = b"a" * 40, b"b" * 40
BLOCK, OTHER = b"\n\n<one>", b"<two>"


def test_calls_come_back_with_their_text(tmp_path: Path) -> None:
    one = OpenStore(tmp_path)
    one.save(A, calls={"call_1": BLOCK, "call_2": BLOCK})
    one.save(B, calls={"call_3": OTHER})
    assert one.store.tool_turns(["call_1", "call_2"]) == [
        ToolMap(A, {"call_1": BLOCK, "call_2": BLOCK}),
    ]
    assert one.store.tool_turns(["call_3", "call_9"]) == [ToolMap(B, {"call_3": OTHER})]
    both = one.store.tool_turns(["call_1", "call_3"])
    assert {tuple(turn.calls) for turn in both} == {("call_1",), ("call_3",)}
    assert one.store.tool_turns([]) == []
    one.store.close()


def test_a_loaded_file_brings_its_calls(tmp_path: Path) -> None:
    one = OpenStore(tmp_path)
    one.save(A, calls={"call_1": BLOCK})
    (file,) = one.store.find(A, 512)
    loaded = one.store.load(file, A, cast(Session, SyntheticSession()), lambda tokens, file: True)
    assert loaded is not None
    assert loaded.tool_map == {"call_1": BLOCK}
    one.store.close()
    content = (tmp_path / cache_name(A)).read_bytes()
    assert content[6] == 1
    assert content.endswith(tool_map({"call_1": BLOCK}))


def test_a_file_that_is_there_gets_the_calls_that_it_lacks(tmp_path: Path) -> None:
    one = OpenStore(tmp_path)
    one.save(A)
    payload_end = (tmp_path / cache_name(A)).stat().st_size
    assert one.save(A, calls={"call_1": BLOCK}).bytes == 0
    one.save(A, calls={"call_2": OTHER})
    content = (tmp_path / cache_name(A)).read_bytes()
    assert content[payload_end:] == tool_map({"call_1": BLOCK, "call_2": OTHER})
    assert one.store.tool_turns(["call_1", "call_2"]) == [ToolMap(A, {"call_1": BLOCK, "call_2": OTHER})]
    assert one.ask(A) == A, "the checksum still holds"
    one.save(A, calls={"call_2": OTHER})
    assert (tmp_path / cache_name(A)).read_bytes()[payload_end:] == content[payload_end:]
    one.store.close()


def test_each_map_is_read_once_for_its_ids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    open_cache_file = tool_index_module.open_cache_file

    def count(path: Path) -> CacheReader:
        opened.append(path.name)
        return open_cache_file(path)

    monkeypatch.setattr(tool_index_module, "open_cache_file", count)
    one = OpenStore(tmp_path)
    for number in range(20):
        one.save(b"%040d" % number, calls={f"call_{number}": BLOCK})
    one.save(A)
    assert len(one.store.tool_turns([f"call_{number}" for number in range(20)])) == 20
    opened.clear()
    assert one.store.tool_turns(["call_unknown"]) == []
    assert opened == []
    assert len(one.store.tool_turns(["call_7"])) == 1
    assert opened == [cache_name(b"%040d" % 7)]
    one.store.close()


def test_the_latest_used_file_answers(tmp_path: Path) -> None:
    for text, used in ((A, 100), (B, 200)):
        trailer = tool_map({"call_1": text})
        put_cache_file(tmp_path, text, payload=b"x", extensions=1, trailer=trailer, used=used)
    one = OpenStore(tmp_path)
    assert one.store.tool_turns(["call_1"]) == [ToolMap(B, {"call_1": B})]
    one.store.close()


def test_maps_of_other_models_and_broken_maps_say_nothing(tmp_path: Path) -> None:
    trailer = tool_map({"call_1": BLOCK, "call_2": OTHER})
    put_cache_file(tmp_path, A, payload=b"x", extensions=1, trailer=trailer, model_id=1)
    put_cache_file(tmp_path, B, payload=b"x", extensions=1, trailer=trailer[:-1])
    put_cache_file(tmp_path, b"c", payload=b"x", extensions=0, trailer=tool_map({"call_3": BLOCK}))
    one = OpenStore(tmp_path)
    assert one.store.tool_turns(["call_1", "call_2", "call_3"]) == [ToolMap(B, {"call_1": BLOCK})]
    one.store.close()


def test_a_file_that_vanishes_between_two_requests(tmp_path: Path) -> None:
    one = OpenStore(tmp_path)
    one.save(A, calls={"call_1": BLOCK})
    assert one.store.tool_turns(["call_1"])
    (tmp_path / cache_name(A)).unlink()
    assert one.store.tool_turns(["call_1"]) == []
    one.store.close()


def test_a_call_that_comes_later_is_found_too(tmp_path: Path) -> None:
    one = OpenStore(tmp_path)
    one.save(A, calls={"call_1": BLOCK})
    assert one.store.tool_turns(["call_1", "call_2"]) == [ToolMap(A, {"call_1": BLOCK})]
    one.save(A, calls={"call_2": OTHER})
    assert one.store.tool_turns(["call_2"]) == [ToolMap(A, {"call_2": OTHER})]
    one.store.close()
