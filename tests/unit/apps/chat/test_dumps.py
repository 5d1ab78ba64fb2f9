"""The dump files, byte for byte in the layout of the original engine."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from apps.chat import token_json
from apps.chat.dumps import logits_json, logprobs_json, token_lines, write_lines
from shared.errors import EngineFault
from tests.support.golden import GOLDEN
from tests.support.scripts import scripted, turn

SPREAD = {"logits": {"a": 2.0, "b": 1.0, "c": 0.5}}


def _session(engine, text="hi", context=50):
    session = engine.open_session(context)
    session.sync([engine.tokenizer.specials.bos, *engine.tokenizer.encode_text(text)])
    return session


def _outline(text):
    """The layout of a dump: its text with every number and string replaced by a mark."""
    return re.sub(r"-?\d+(\.\d+)?(e[+-]?\d+)?", "0", re.sub(r'"text":"(\\.|[^"\\])*"', '"text":""', text))


def test_token_lines():
    engine = scripted(turn("x"))
    bos = engine.tokenizer.specials.bos
    assert list(token_lines([bos, *engine.tokenizer.encode_text("a b")], engine.tokenizer)) == [
        f"[{bos}, 97, 32, 98]",
        f"{bos:6d}  <｜begin▁of▁sentence｜>",
        "    97  a",
        "    32  Ġ",
        "    98  b",
    ]


def test_numbers_are_those_of_the_golden_dumps():
    for value in (7.44199276, 0.857411385, -0.0560845658, 5.0, 1e-20, 1e20):
        assert float(token_json.number(np.float32(value))) == pytest.approx(value, rel=1e-6)
    assert token_json.number(np.float32(7.44199276)) == "7.44199276"
    assert token_json.number(np.float32(4.329494)) == "4.329494"
    assert [token_json.number(v) for v in (np.nan, np.inf, -np.inf)] == ["null"] * 3


def test_token_text_escapes_each_high_byte_by_itself():
    assert token_json.piece('é\n"'.encode()) == r'"\u00c3\u00a9\n\""'


def test_logits_have_the_layout_of_the_golden_dump():
    engine = scripted(turn(SPREAD))
    text = "\n".join(logits_json(engine, _session(engine), 'ti"ny.gguf')) + "\n"
    golden = (GOLDEN / "cli-dump-logits.json").read_text()
    dump, expected = json.loads(text), json.loads(golden)
    assert list(dump) == list(expected)
    assert (dump["source"], dump["model"], dump["backend"]) == ("ds4", 'ti"ny.gguf', "scripted")
    assert (dump["prompt_tokens"], dump["ctx"], dump["vocab"]) == (3, 50, len(dump["logits"]))
    assert dump["argmax_token"] == {"id": 97, "text": "a", "bytes": [97]}
    assert dump["argmax_logit"] == dump["logits"][97] == 2.0
    head, _, rows = _outline(text).partition('"logits":[\n')
    golden_head, _, golden_rows = _outline(golden).partition('"logits":[\n')
    # Line by line the same keys, in the same places.
    assert [line.split(":")[0] for line in head.splitlines()] == [
        line.split(":")[0] for line in golden_head.splitlines()
    ]
    assert rows.splitlines()[0] == golden_rows.splitlines()[0]
    assert rows.splitlines()[-2:] == golden_rows.splitlines()[-2:]


def test_logits_that_are_not_finite_are_null():
    engine = scripted(turn("x"))
    session = _session(engine)
    values = session.logits()
    values[:3] = [np.nan, np.inf, -np.inf]
    session.logits = lambda: values
    assert json.loads("".join(logits_json(engine, session, "m")))["logits"][:3] == [None] * 3


def test_logprobs_are_greedy_and_have_the_layout_of_the_golden_dump():
    engine = scripted(turn(SPREAD, SPREAD, SPREAD))
    text = "\n".join(logprobs_json(engine, _session(engine), steps=2, top_k=2)) + "\n"
    dump = json.loads(text)
    golden = json.loads((GOLDEN / "cli-dump-logprobs.json").read_text())
    assert list(dump) == list(golden)
    assert [step["step"] for step in dump["steps"]] == [0, 1]
    step, expected = dump["steps"][0], golden["steps"][0]
    assert list(step) == list(expected)
    assert list(step["top_logprobs"][0]) == list(expected["top_logprobs"][0])
    assert [c["token"]["text"] for c in step["top_logprobs"]] == ["a", "b"]
    assert step["selected"]["text"] == "a"
    # The first lines of both files, without their numbers and texts, are the same.
    ours, theirs = (_outline(t).splitlines() for t in (text, (GOLDEN / "cli-dump-logprobs.json").read_text()))
    assert ours[:6] == theirs[:6]
    shorten = re.compile(r'"bytes":\[[0,]*\]')
    candidate = shorten.sub("", theirs[6])[: len('    {"step":0,"selected":{"id":0,"text":"",')]
    assert shorten.sub("", ours[6]).startswith(candidate)
    assert ours[-2:] == theirs[-2:]


def test_the_end_token_is_recorded_and_ends_the_steps():
    engine = scripted(turn(SPREAD))
    dump = json.loads("".join(logprobs_json(engine, _session(engine), steps=9, top_k=1)))
    assert [step["selected"]["id"] for step in dump["steps"]] == [97, engine.tokenizer.specials.eos]


def test_the_context_ends_the_steps():
    engine = scripted(turn(*[SPREAD] * 9))
    dump = json.loads("".join(logprobs_json(engine, _session(engine, context=5), steps=9, top_k=1)))
    # Three tokens are there: two more fit, and the logits after them choose a third.
    assert len(dump["steps"]) == 3


def test_a_failed_dump_leaves_nothing_behind(tmp_path):
    engine = scripted(turn(SPREAD, SPREAD, fail={"at": "decode", "after": 0}))

    def lines():
        yield "{"
        raise EngineFault("gone")

    (tmp_path / "dump").write_text("old")
    with pytest.raises(EngineFault):
        write_lines(tmp_path / "dump", lines())
    assert (tmp_path / "dump").read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 1
    write_lines(tmp_path / "dump", iter(["a", "é"]))
    assert (tmp_path / "dump").read_text(encoding="utf-8") == "a\né\n"
    assert engine.name


def test_links_and_devices_are_written_to_and_not_replaced(tmp_path):
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "target")
    write_lines(link, iter(["a"]))
    assert link.is_symlink()
    assert (tmp_path / "target").read_text() == "a\n"
    write_lines(Path("/dev/null"), iter(["a"]))
    assert Path("/dev/null").is_char_device()
