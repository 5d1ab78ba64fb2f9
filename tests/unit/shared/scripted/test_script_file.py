"""Which scripts are accepted, and what is said about the others."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.errors import UsageError
from shared.scripted.script import HexPiece, LogitsPiece, PlainPiece, TextPiece, TokensPiece
from shared.scripted.script_file import LARGEST_SCRIPT, parse_script, read_script

EVERYTHING = """{
  "turns": [
    {"pieces": ["text", {"hex": "F09F"}, {"text": "slow", "delay_s": 0.5}, {"plain": "</think>"},
                {"tokens": ["a", "b"]}, {"text": "x", "else": ["y", "z"]}, {"logits": {"a": 2.0, "b": -1}}],
     "match": "hello", "piece_delay_s": 0.1, "prefill_s_per_1000_tokens": 1, "prefill_block_s": 2,
     "prefill_spin_s": 3, "fail": {"at": "decode", "after": 2}, "eos": false},
    {"pieces": [], "fail": null}
  ],
  "after": "cycle",
  "engine": {"name": "Toy", "model_id": 1, "quant_bits": 4},
  "prefill_chunk": 64,
  "snapshot": {"fixed_bytes": 1000, "bytes_per_token": 10, "save_s_per_mb": 0.25},
  "journal": "journal.jsonl"
}"""


def test_every_field() -> None:
    script = parse_script(EVERYTHING)
    first, second = script.turns
    assert [type(piece) for piece in first.pieces] == [
        str, HexPiece, TextPiece, PlainPiece, TokensPiece, TextPiece, LogitsPiece
    ]  # fmt: skip
    assert first.pieces[5].otherwise == ["y", "z"]
    assert (first.match, first.prefill_block_s, first.prefill_spin_s, first.eos) == ("hello", 2, 3, False)
    assert (first.fail.at, first.fail.after) == ("decode", 2)
    assert (second.pieces, second.fail) == ([], None)
    assert (script.engine.name, script.engine.model_id, script.engine.quant_bits) == ("Toy", 1, 4)
    assert (script.after, script.prefill_chunk, script.journal) == ("cycle", 64, "journal.jsonl")
    assert script.snapshot.save_s_per_mb == 0.25


def test_defaults() -> None:
    script = parse_script('{"turns": [{"pieces": ["a"]}]}')
    assert (script.after, script.prefill_chunk, script.journal) == ("repeat-last", 2048, None)
    assert script.turns[0].eos
    assert (script.snapshot.fixed_bytes, script.snapshot.bytes_per_token) == (0, 0)


def turn(pieces: str, rest: str = "") -> str:
    return '{"turns": [\n{"pieces": [\n' + pieces + "]" + rest + "}]}"


REFUSED = [
    ("[", "line 1, column 2: Expecting value"),
    ('{"turns": [\n{"pieces": ["a",]}]}', "line 2, column 17"),
    ('{"turns": [\n{"pieces": ["a"],\n"eso": true}]}', "line 3: turns[0].eso: there is no such key here"),
    ('{"turns": [], "turn": []}', "line 1: turn: there is no such key here"),
    ('{"after": "eos"}', "turns: this key is missing"),
    ('{"turns": [\n{"match": "x"}]}', "line 2: turns[0].pieces: this key is missing"),
    ('{"turns": []}', '"after": "repeat-last" needs at least one turn'),
    ("7", "line 1: an object is needed here"),
    ('{"turns": [7]}', "turns[0]: an object is needed here"),
    (turn('"a",\n3'), "line 4: turns[0].pieces[1]: a piece is a text, or an object with one of text, hex"),
    (turn('{"txt": "a"}'), "line 3: turns[0].pieces[0]: a piece is a text, or an object"),
    (turn('{"text": "a",\n"hex": "61"}'), "line 4: turns[0].pieces[0].hex: there is no such key here"),
    (turn('{"hex": "6", "delay_s": 1}'), "pieces[0].hex: hex must be pairs of hexadecimal digits"),
    (turn('{"hex": ""}'), "hex must be pairs"),
    (turn('{"hex": "zz"}'), "hex must be pairs"),
    (turn('""'), "turns[0].pieces[0]: string should have at least 1 character"),
    (turn('{"tokens": []}'), "turns[0].pieces[0].tokens: list should have at least 1 item"),
    (turn('{"text": "a", "else": [1]}'), "turns[0].pieces[0].else[0]: input should be a valid string"),
    (turn('{"text": "a",\n"delay_s": -1}'), "line 4: turns[0].pieces[0].delay_s: input should be greater"),
    (turn('{"text": "a", "delay_s": "1"}'), "delay_s: input should be a valid number"),
    (turn('{"text": "a", "delay_s": 1e999}'), "delay_s: input should be"),
    (turn('{"logits": {}}'), "logits: dictionary should have at least 1 item"),
    (turn('{"logits": {"a": NaN}}'), "line 3, column 18: this is not a JSON number"),
    (turn('{"logits": {"a": -Infinity}}'), "this is not a JSON number"),
    (turn('{"logits": {"ab": 1, "ac": 2}}'), "'ab' and 'ac' begin with the same token"),
    (turn('{"text": "\\ud800"}'), "half of a surrogate pair"),
    (turn('"a"', ',\n"fail": {"at": "lunch"}'), "line 4: turns[0].fail.at: input should be 'prefill'"),
    (turn('"a"', ',\n"fail": {"at": "decode", "after": 2}'), "instead of piece 2 but ends after 1 pieces"),
    (turn('"a"', ',"eos": 1'), "turns[0].eos: input should be a valid boolean"),
    (turn('"a"', ',\n"eos": true, "eos": false'), 'line 4, column 14: the key "eos" stands twice'),
    ('{"turns": [{"pieces": []}], "after": "x"}', "after: input should be 'repeat-last', 'cycle' or 'eos'"),
    ('{"turns": [{"pieces": []}], "prefill_chunk": 0}', "prefill_chunk: input should be greater"),
    ('{"turns": [{"pieces": []}], "engine": {"model_id": 2}}', "engine.model_id: input should be 0 or 1"),
    ("[" * 100_000, "nested too deeply"),
    ('{"turns": ' + "9" * 5000 + "}", "limit"),
]


@pytest.mark.parametrize(("text", "message"), REFUSED, ids=range(len(REFUSED)))
def test_refused_with_line_and_reason(text: str, message: str) -> None:
    with pytest.raises(UsageError) as refusal:
        parse_script(text, "s.json")
    told = str(refusal.value)
    assert message in told
    assert told.startswith("s.json")
    assert "\n" not in told


def test_counts_further_faults() -> None:
    with pytest.raises(UsageError, match=r"turns\[0\].a: there is no such key here \(and 1 more\)"):
        parse_script('{"turns": [{"pieces": [], "a": 1, "b": 2}]}')


def test_files(tmp_path: Path) -> None:
    file = tmp_path / "script.json"
    with pytest.raises(UsageError, match=r"cannot read the script .*script\.json"):
        read_script(file)
    with pytest.raises(UsageError, match="cannot read"):
        read_script(tmp_path)
    file.write_bytes(b'\xef\xbb\xbf{"turns": [{"pieces": ["\xc3\xa9"]}]}')
    assert read_script(file).turns[0].pieces == ["é"]
    file.write_bytes(b'{"turns": [\n{"pieces": ["\xff"]}]}')
    with pytest.raises(UsageError, match=r"script\.json, line 2: the script is not UTF-8"):
        read_script(file)
    with file.open("wb") as sparse:
        sparse.truncate(LARGEST_SCRIPT + 1)
    with pytest.raises(UsageError, match="too large"):
        read_script(file)


@given(st.text(alphabet='{}[]",:0aeu\\ \n', max_size=30))
def test_any_text_is_a_script_or_one_line(text: str) -> None:
    told = ""
    try:
        parse_script(text)
    except UsageError as error:
        told = str(error)
    assert "\n" not in told


@given(st.integers(0, 400))
def test_a_truncated_script_is_refused(length: int) -> None:
    text = json.dumps(json.loads(EVERYTHING), indent=1)
    with pytest.raises(UsageError, match="line"):
        parse_script(text[:length])
