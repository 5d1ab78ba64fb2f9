"""`ds4 kv ls`: one row a file, and what cannot be used is named."""

import json
import struct

from apps import cli
from apps.kv.listing import list_place, listing_lines
from apps.kv.places import Place
from tests.support.cache_builder import CREATED, cache_bytes, put_cache_file, zero_payload
from tests.support.golden import cache_folder


def _ls(capsys, *arguments):
    code = cli.main(["kv", "ls", *map(str, arguments)])
    return code, capsys.readouterr().out


def _lines(folder, width=120):
    listing = list_place(Place(folder, "named folder"))
    return [line for line, _ in listing_lines(listing, CREATED + 7200.0, width)]


def test_files_of_the_c_engine(capsys):
    code, out = _ls(capsys, cache_folder(), "--json")
    (folder,) = json.loads(out)["folders"]
    by_reason = {file["reason"]: file for file in folder["files"]}
    assert code == 0
    assert folder["bytes"] == sum(file["size"] for file in folder["files"])
    cold = by_reason["cold"]
    assert (cold["tokens"], cold["context"], cold["text_bytes"]) == (672, 2048, 1483)
    assert (cold["payload_bytes"], cold["quant_bits"], cold["key"]) == (1943268, 2, "token-text")
    assert by_reason["shutdown"]["tokens"] == 746


def test_the_newest_comes_first_and_long_texts_keep_their_end(tmp_path):
    put_cache_file(tmp_path, b"<|User|>" + b"old " * 50 + b"\x1b[2J the end", hits=12, used=CREATED)
    put_cache_file(tmp_path, b"short", reason=2, used=CREATED + 7140)
    head, columns, *rows = _lines(tmp_path, 90)
    assert head.startswith(f"{tmp_path}  (named folder: 2 files, ")
    assert columns.split() == ["key", "tokens", "reason", "size", "hits", "last", "use", "text"]
    assert rows[0].endswith("0  1 min ago  …short")
    assert "continued" in rows[0]
    assert " 12  2 h ago " in rows[1]
    assert rows[1].endswith("old �[2J the end")
    assert max(map(len, rows)) <= 90


def test_a_session_shows_its_title_and_that_it_is_stripped(tmp_path):
    title = b"Hello \xe4\xb8\x96 world"
    trailer = struct.pack("<I", len(title)) + title
    put_cache_file(tmp_path, b"text", payload=b"", reason=6, extensions=8, trailer=trailer)
    row = _lines(tmp_path)[2]
    assert row.endswith("  Hello 世 world")
    assert "agent-session (stripped)" in row


def test_what_cannot_be_used_is_named_and_damage_is_a_problem(tmp_path, capsys):
    good = put_cache_file(tmp_path, b"good")
    older = cache_bytes(b"old", zero_payload(10), tokens=10)
    (tmp_path / ("1" * 40 + ".kv")).write_bytes(b"KVC\x02" + older[4:])
    assert _ls(capsys, tmp_path)[0] == 0
    (tmp_path / ("2" * 40 + ".kv")).write_bytes(good.read_bytes()[:-1])
    (tmp_path / "bad").mkdir()
    put_cache_file(tmp_path / "bad", b"set aside")
    code, out = _ls(capsys, "--dir", tmp_path)
    assert code == 1
    assert f"  foreign: {'1' * 40}.kv: cache file version 2" in out
    assert f"  damaged: {'2' * 40}.kv: the cache file is cut off" in out
    assert "  1 damaged set aside in bad/" in out
    assert out.count(good.name[:8]) == 1


def test_a_title_that_is_cut_off_is_damage(tmp_path, capsys):
    put_cache_file(tmp_path, b"text", payload=b"", reason=6, extensions=8, trailer=b"\x05\0\0\0ab")
    code, out = _ls(capsys, tmp_path)
    assert code == 1
    assert "title is missing or cut off" in out


def test_without_a_folder_all_of_ours_are_listed(folders, capsys):
    assert _ls(capsys) == (0, "no saved states yet\n")
    for root in folders:
        (root / "0123456789abcdef").mkdir(parents=True)
        put_cache_file(root / "0123456789abcdef", b"text")
    _, out = _ls(capsys)
    assert out.index("prompt states: 1 file,") < out.index("chat sessions: 1 file,")


def test_no_colour_in_a_pipe(tmp_path, capsys):
    put_cache_file(tmp_path, b"text")
    assert "\x1b" not in _ls(capsys, tmp_path)[1]


def test_wrong_usage_is_one_line(tmp_path, capsys):
    for arguments in (["kv"], ["kv", "ls", str(tmp_path), "--dir", str(tmp_path)], ["kv", "ls", "missing"]):
        assert cli.main(arguments) == 2
        assert capsys.readouterr().err.count("\n") == 1
