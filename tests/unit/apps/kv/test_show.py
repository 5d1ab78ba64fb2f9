"""`ds4 kv show`: a file taken apart, whatever is wrong with it."""

import json
import struct

import pytest

from apps import cli
from tests.support.cache_builder import put_cache_file, tool_map, zero_payload
from tests.support.golden import cache_folder

COLD = cache_folder() / "27982986a0366fafd831be014f60507faa005a4c.kv"


def _show(capsys, *arguments):
    code = cli.main(["kv", "show", *map(str, arguments)])
    return code, capsys.readouterr().out


def _record(capsys, *arguments):
    code, out = _show(capsys, *arguments, "--json")
    return code, json.loads(out)


def test_a_file_of_the_c_engine(capsys):
    code, found = _record(capsys, "2798", "--dir", cache_folder())
    assert code == 0
    assert found["path"] == str(COLD)
    assert bytes.fromhex(found["header_hex"]) == COLD.read_bytes()[:52]
    assert list(found["payload"]["words"].values()) == [
        878072644, 2, 2048, 2048, 128, 128, 514, 672, 6, 256, 128, 1280, 128,
    ]  # fmt: skip
    assert [layer["ratio"] for layer in found["payload"]["layers"]] == [0, 0, 4, 128, 4, 128]
    assert found["payload"]["layers"][2] == {"ratio": 4, "compressed_rows": 168, "index_rows": 168}
    assert found["text_preview"].startswith("<｜begin▁of▁sentence｜>You are a terse assistant.")


def test_the_sections_cover_the_file_without_a_gap(capsys):
    _, found = _record(capsys, COLD)
    at = 0
    for section in found["sections"]:
        assert section["start"] == at
        at += section["bytes"]
    assert at == COLD.stat().st_size


def test_for_people(capsys):
    code, out = _show(capsys, COLD)
    assert code == 0
    assert "key         token-text, 1483 bytes of text\n" in out
    assert "  ratio 4: 168 compressed and 168 indexer rows in layers 2, 4\n" in out
    assert "          9443       1935360  payload: tensors\n" in out
    assert "  4b564301 02010000 a0020000 03000000\n" in out
    assert "checksum    none: changed tensor bytes would go unnoticed\n" in out


def test_a_tool_map(tmp_path, capsys):
    calls = {"call_1": b"<tool_calls>\x1b</tool_calls>", "toolu_2": b"<tool_calls/>"}
    path = put_cache_file(tmp_path, b"text", extensions=1, trailer=tool_map(calls) + b"xy")
    _, out = _show(capsys, path)
    assert "tool calls  2 of 2 can be read\n  call_1  <tool_calls>�</tool_calls>\n" in out
    _, found = _record(capsys, path)
    assert found["tool_calls"] == ["call_1", "toolu_2"]
    assert [tuple(section.values())[::2] for section in found["sections"]][-2:] == [
        ("tool map", len(tool_map(calls))),
        ("unknown", 2),
    ]
    path.write_bytes(path.read_bytes()[:-6])
    assert "tool calls  1 of 2 can be read\n" in _show(capsys, path)[1]


def test_a_stripped_session(tmp_path, capsys):
    path = put_cache_file(
        tmp_path, b"text", payload=b"", reason=6, extensions=8, trailer=struct.pack("<I", 5) + b"Title"
    )
    code, out = _show(capsys, path)
    assert code == 0
    assert "title       Title\n" in out
    assert "payload     none: a stripped session" in out


def test_older_files_can_be_looked_at(tmp_path, capsys):
    code, out = _show(capsys, put_cache_file(tmp_path, b"text", abi=0))
    assert code == 0
    assert "payload ABI 0" in out


def test_few_tokens_do_not_tell_every_ratio(tmp_path, capsys):
    _, out = _show(capsys, put_cache_file(tmp_path, b"text"))
    assert "  ratio not told by so few tokens: 0 compressed and 0 indexer rows in layers 0, 2\n" in out
    assert "  ratio 4: 2 compressed and 2 indexer rows in layers 1\n" in out


def test_a_payload_that_cannot_be_right_is_a_problem(tmp_path, capsys):
    path = put_cache_file(tmp_path, b"text", payload=zero_payload(200)[:-4], tokens=200)
    code, out = _show(capsys, path)
    assert code == 1
    assert "payload     its row counts call for another size: 4 bytes missing\n" in out


@pytest.mark.parametrize("flags", [0, 16, 255])
def test_times_and_flags_of_any_value(tmp_path, capsys, flags):
    path = put_cache_file(tmp_path, b"text", extensions=flags & ~9, used=2**63 + 1)
    _, out = _show(capsys, path)
    assert "(no time that a calendar has)" in out
    if flags & 16:
        assert "unknown 0x" in out


def test_a_file_that_is_none(tmp_path, capsys):
    (tmp_path / "x.kv").write_bytes(b"hello")
    assert cli.main(["kv", "show", str(tmp_path / "x.kv")]) == 1
    assert capsys.readouterr().err == "ds4: x.kv: this is not a cache file\n"
