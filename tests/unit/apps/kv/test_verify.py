"""`ds4 kv verify`: what is wrong with a file is found, with and without its model."""

import hashlib
import io
import json
import shutil
import struct
from contextlib import closing

import pytest

from apps import cli
from apps.kv.model_check import ModelCheck
from apps.kv.verification import verify_file
from shared.kv.files.cache_writer import write_cache_file
from shared.kv.files.header import Extension, Header, Reason
from shared.scripted.payload import SavedState, write_payload
from shared.scripted.script import SnapshotCost
from shared.scripted.steps import Cursor
from tests.support.cache_builder import CREATED, cache_bytes, put_cache_file, tool_map, zero_payload
from tests.support.golden import cache_folder, tiny_pro, tiny_q2, tiny_q4

COLD = cache_folder() / "27982986a0366fafd831be014f60507faa005a4c.kv"
UNCHECKED = "it has no checksum: a changed byte of a tensor would go unnoticed"
TEXT_AT = 52


def _verify(capsys, *arguments):
    code = cli.main(["kv", "verify", *map(str, arguments), "--json"])
    return code, json.loads(capsys.readouterr().out)["files"]


def _changed(source, folder, offset, new):
    """A copy of `source` under its name with other bytes at `offset`."""
    content = bytearray(source.read_bytes())
    content[offset : offset + len(new)] = new
    path = folder / source.name
    path.write_bytes(content)
    return path


def _summed(folder, tokens=200):
    """A whole file of ours, with the checksum beside it."""
    text, payload = b"some text", zero_payload(tokens)
    header = Header(2, Reason.COLD, Extension(0), 0, tokens, 0, 2048, CREATED, CREATED, len(payload))
    path = folder / f"{hashlib.sha1(text).hexdigest()}.kv"
    write_cache_file(path, header, text, [payload], durable=False)
    return path


def test_files_of_the_c_engine_are_whole(capsys):
    code, files = _verify(capsys, "--all", "--dir", cache_folder())
    assert code == 0
    assert [(file["state"], file["problems"], file["notes"]) for file in files] == [
        ("ok", [], [UNCHECKED])
    ] * 2


def test_their_own_model_agrees_and_another_one_does_not(capsys):
    code, (found,) = _verify(capsys, COLD, "-m", tiny_q2())
    assert (code, found["state"], found["notes"]) == (0, "ok", [UNCHECKED])
    code, (found,) = _verify(capsys, COLD, "-m", tiny_q4())
    assert (code, found["state"]) == (0, "ok")
    assert "it was written by a model of 2-bit experts, this one has 4 bits" in found["notes"]
    code, (found,) = _verify(capsys, COLD, "-m", tiny_pro())
    assert (code, found["state"], found["problems"]) == (1, "foreign", [])
    assert _verify(capsys, "--all", "--dir", cache_folder(), "-m", tiny_pro())[0] == 0


@pytest.mark.parametrize(
    ("payload", "fields", "why"),
    [
        ({}, {"model_id": 1}, "it belongs to model 1, this is model 0"),
        ({"head_dim": 128}, {}, "it was written for another model layout"),
        ({"ratios": (0, 0, 4, 128, 4)}, {}, "it was written for another model layout"),
        ({"context": 64}, {"context": 64}, "it has a window of 128 tokens where this model has 64"),
        ({"ratios": (0, 0, 4, 128, 4, 0)}, {}, "it was written for a model whose layers have other ratios"),
    ],
)
def test_each_way_to_be_of_another_model(tmp_path, payload, fields, why):
    sizes = {"ratios": (0, 0, 4, 128, 4, 128), "head_dim": 256, "index_dim": 128, "vocabulary": 1280}
    tokens = payload.get("context", 200)
    path = put_cache_file(tmp_path, b"text", tokens, zero_payload(tokens, **(sizes | payload)), **fields)
    with closing(ModelCheck.open(tiny_q2())) as model:
        verdict = verify_file(path, model)
    assert (verdict.foreign, verdict.problems) == (why, [])


def test_tokens_that_do_not_render_to_the_text_need_the_model(tmp_path, capsys):
    path = _changed(COLD, tmp_path, TEXT_AT + 1483 + 52 + 4 * 100, struct.pack("<I", 7))
    assert _verify(capsys, path)[0] == 0
    code, (found,) = _verify(capsys, path, "-m", tiny_q2())
    assert (code, found["problems"]) == (1, ["its tokens do not render to its text"])


def test_ratios_that_few_tokens_hide_need_the_model(tmp_path, capsys):
    sizes = {"head_dim": 256, "index_dim": 128, "vocabulary": 1280}
    path = put_cache_file(tmp_path, b"text", payload=zero_payload(10, (0, 0, 4, 0, 4, 128), **sizes))
    code, (found,) = _verify(capsys, path)
    assert code == 0
    assert found["notes"][0].startswith("10 tokens do not tell the ratio of 4 of 6 layers")
    code, (found,) = _verify(capsys, path, "-m", tiny_q2())
    assert code == 1
    assert found["problems"][0].startswith("its payload has ")


@pytest.mark.parametrize(
    ("offset", "new", "problem"),
    [
        (4, b"\x03", "quant bits"),
        (8, b"\0\0\0\0", "no tokens"),
        (8, struct.pack("<I", 201), "its header says 201 tokens, its payload 200"),
        (16, struct.pack("<I", 2049), "its header says a context of 2049, its payload 2048"),
        (40, struct.pack("<Q", 2**40), "cut off: it has"),
        (48, struct.pack("<I", 2**32 - 1), "cut off: it has"),
        (TEXT_AT, b"S", "its text does not hash to its name"),
        (TEXT_AT + 9, b"X", "payload: it does not start with the letters DSV4"),
        (TEXT_AT + 9 + 4 * 8, b"\x04", "payload: "),
        (TEXT_AT + 9 + 52 + 200 * 4, b"\x01", "not what the checksum beside it was made of"),
        (-1, b"\x01", "not what the checksum beside it was made of"),
    ],
)
def test_a_changed_byte(tmp_path, capsys, offset, new, problem):
    source = _summed(tmp_path)
    assert _verify(capsys, source)[0] == 0
    content = bytearray(source.read_bytes())
    start = offset % len(content)
    content[start : start + len(new)] = new
    source.write_bytes(content)
    code, (found,) = _verify(capsys, source)
    assert (code, found["state"]) == (1, "damaged")
    assert any(problem in line for line in found["problems"])


def test_without_a_checksum_a_tensor_byte_goes_unnoticed_and_that_is_said(tmp_path, capsys):
    path = _changed(COLD, tmp_path, COLD.stat().st_size - 100, b"\x55")
    code, (found,) = _verify(capsys, path)
    assert (code, found["notes"]) == (0, [UNCHECKED])


@pytest.mark.parametrize("cut", [1, 100, 5000])
def test_a_cut_off_file(tmp_path, cut):
    path = tmp_path / COLD.name
    path.write_bytes(COLD.read_bytes()[:-cut])
    assert "cut off" in verify_file(path).problems[0]


def test_foreign_files_are_no_problem_unless_asked_about(tmp_path, capsys):
    path = put_cache_file(tmp_path, b"text", abi=0)
    assert _verify(capsys, "--all", "--dir", tmp_path)[0] == 0
    code, (found,) = _verify(capsys, path)
    assert (code, found["state"]) == (1, "foreign")


def test_a_name_that_no_store_looks_for_is_only_noted(tmp_path):
    path = tmp_path / "copy.kv"
    shutil.copy(COLD, path)
    verdict = verify_file(path)
    assert verdict.state == "ok"
    assert verdict.notes[0] == f"nothing finds it under this name, which should be {COLD.name}"


def test_sessions_are_named_after_title_and_time(tmp_path):
    content = cache_bytes(
        b"text", b"", tokens=10, reason=6, extensions=8, trailer=struct.pack("<I", 11) + b"Hello world"
    )
    path = tmp_path / "fe8c5b68d8e9bd6eae558cb82b5bcee2a94c31fb.kv"
    path.write_bytes(content)
    verdict = verify_file(path)
    assert (verdict.state, verdict.notes[0]) == ("ok", "it has no payload: a stripped session")
    path.write_bytes(content[:-1] + b"D")
    assert verify_file(path).problems[0].startswith("its title and time do not hash to its name")
    path.write_bytes(content[:-1])
    assert "title is missing or cut off" in verify_file(path).problems[0]


def test_the_system_prompt_keeps_its_name(tmp_path):
    path = tmp_path / "sysprompt.kv"
    path.write_bytes(cache_bytes(b"text", zero_payload(200), tokens=200, reason=5))
    assert verify_file(path).notes == [UNCHECKED]


def test_what_follows_the_payload(tmp_path):
    calls = tool_map({"call_1": b"<x>"})
    whole = put_cache_file(
        tmp_path, b"text", payload=zero_payload(200), tokens=200, extensions=1, trailer=calls
    )
    assert verify_file(whole).notes == [UNCHECKED]
    whole.write_bytes(whole.read_bytes() + b"123")
    assert verify_file(whole).notes[0] == "3 bytes at its end belong to nothing that is known"
    whole.write_bytes(whole.read_bytes().replace(b"KTM", b"KTN"))
    verdict = verify_file(whole)
    assert verdict.state == "ok"
    assert verdict.notes[0].startswith("its tool map cannot be read")


def test_payloads_of_the_scripted_engine(tmp_path):
    payload = io.BytesIO()
    write_payload(
        payload,
        SavedState([1, 2, 3], 1, Cursor(0, 0, 0)),
        SnapshotCost(fixed_bytes=0, bytes_per_token=100),
        lambda _: None,
    )
    path = put_cache_file(tmp_path, b"text", payload=payload.getvalue(), tokens=3)
    verdict = verify_file(path)
    assert (verdict.state, verdict.notes[0]) == ("ok", "its payload is of the scripted engine")
    put_cache_file(tmp_path, b"text", payload=payload.getvalue(), tokens=4)
    assert verify_file(path).problems == ["payload: its header says 4 tokens, its payload 3"]
    put_cache_file(tmp_path, b"text", payload=payload.getvalue() + b"x", tokens=3)
    assert "do not add up" in verify_file(path).problems[0]


def test_for_people(tmp_path, capsys):
    path = _summed(tmp_path)
    (tmp_path / ("2" * 40 + ".kv")).write_bytes(path.read_bytes()[:100])
    assert cli.main(["kv", "verify", "--all", "--dir", str(tmp_path)]) == 1
    out = capsys.readouterr().out
    assert f"ok        {path}\n" in out
    assert (
        f"damaged   {tmp_path / ('2' * 40 + '.kv')}\n          {'2' * 40}.kv: the cache file is cut off"
        in out
    )
    assert out.endswith("2 files checked, 1 with problems\n")


def test_wrong_usage(tmp_path, capsys):
    for arguments in ([], ["--all", str(COLD)]):
        assert cli.main(["kv", "verify", *arguments]) == 2
    assert cli.main(["kv", "verify", "abc", "--dir", str(tmp_path)]) == 1
    assert cli.main(["kv", "verify", str(COLD), "-m", str(COLD)]) == 1
    assert capsys.readouterr().err.count("\n") == 4


def test_a_name_that_means_nothing_keeps_no_other_file_from_being_checked(capsys, tmp_path):
    whole = _summed(tmp_path)
    assert cli.main(["kv", "verify", "abcdef", str(whole), "--dir", str(tmp_path)]) == 1
    out, err = capsys.readouterr()
    assert out == f"ok        {whole}\n"
    unknown = f"no cache file abcdef in {tmp_path}: `ds4 kv ls` shows what there is"
    assert err == f"ds4: {unknown}\n"
    assert cli.main(["kv", "verify", str(whole), "abcdef", "--dir", str(tmp_path), "--json"]) == 1
    out, err = capsys.readouterr()
    record = json.loads(out)
    assert (record["ok"], record["unknown"]) == (False, [unknown])
    assert [file["state"] for file in record["files"]] == ["ok"]
    assert cli.main(["kv", "verify", "abcdef", "--dir", str(tmp_path)]) == 1
    assert capsys.readouterr() == ("", f"ds4: {unknown}\n")
