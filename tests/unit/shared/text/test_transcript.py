"""The terminal's own transcript, against the golden prompts and turn by turn."""

from __future__ import annotations

from shared.text import marks
from shared.text.effort import Effort
from shared.text.prompt_texts import EFFORT_ABSOLUTE_MAXIMUM, EFFORT_BEYOND_MAXIMUM
from shared.text.transcript import Transcript, is_rendered
from tests.support.golden import golden_json
from tests.support.vocabularies import tiny_tokenizer

KNOWN = tiny_tokenizer()
S = KNOWN.specials


def text(words: str) -> list[int]:
    return KNOWN.encode_text(words)


def chat(effort: Effort = "high", system: str = "", profile: str = "preview") -> Transcript:
    return Transcript(KNOWN, effort=effort, profile=profile, system=system)


def test_the_golden_prompts() -> None:
    prompts = golden_json("prompts.json")
    for name, effort, system in (
        ("short", "none", ""),
        ("medium", "none", ""),
        ("long", "high", "You are a helpful assistant"),
    ):
        transcript = chat(effort, system)
        transcript.add_user(prompts[name]["text"])
        transcript.begin_answer()
        assert transcript.tokens == prompts[name]["ids"]


def test_the_default_system_text_gives_the_golden_length() -> None:
    transcript = Transcript(KNOWN, effort="none", profile="preview")
    transcript.add_user(golden_json("prompts.json")["short"]["text"])
    transcript.begin_answer()
    assert (
        len(transcript)
        == len(transcript.tokens)
        == golden_json("cli-dump-logprobs.json")["prompt_tokens"]
        == 39
    )


def test_the_golden_chats() -> None:
    efforts: dict[str, Effort] = {"think off": "none", "think on": "high", "think max": "max"}
    entries = [entry for entry in golden_json("tokenizer.json") if entry["kind"].startswith("chat")]
    assert {entry["kind"][-9:].lstrip(" ,") for entry in entries} == set(efforts)
    for entry in entries:
        quoted = entry["kind"].split('"')
        transcript = chat(efforts[entry["kind"].rpartition(", ")[2]], quoted[1] if len(quoted) > 1 else "")
        transcript.add_user(entry["text"])
        transcript.begin_answer()
        assert transcript.tokens == entry["ids"]


def test_a_conversation() -> None:
    transcript = chat(system="sys")
    transcript.add_user("hi")
    transcript.begin_answer()
    assert transcript.thinking
    transcript.add_answer_tokens([5, S.think_end])
    assert not transcript.thinking
    transcript.add_answer_tokens([7])
    transcript.close()
    transcript.add_tool("out")
    transcript.set_effort("none")
    transcript.begin_answer()
    assert not transcript.thinking
    assert transcript.tokens == [
        *(S.bos, *text("sys"), S.user, *text("hi")),
        *(S.assistant, S.think, 5, S.think_end, 7, S.eos),
        *(S.user, *text("Tool: out"), S.assistant, S.think_end),
    ]


def test_an_answer_cut_in_thinking_is_over() -> None:
    transcript = chat()
    transcript.add_user("hi")
    transcript.begin_answer()
    transcript.add_answer_tokens([5])
    assert transcript.thinking
    transcript.close()
    assert not transcript.thinking
    transcript.add_user("go on")
    assert not transcript.thinking


def test_an_answer_is_ended_once() -> None:
    transcript = chat()
    transcript.add_user("hi")
    transcript.begin_answer()
    transcript.add_answer_tokens([5, S.eos])
    transcript.close()
    transcript.close()
    assert transcript.tokens[-2:] == [5, S.eos]


def test_bodies_never_become_control_tokens() -> None:
    hostile = "a " + " ".join(marks.ALL)
    transcript = chat(system=hostile)
    transcript.add_user(hostile)
    transcript.add_tool(hostile)
    transcript.add_assistant(hostile)
    control = [token for token in transcript.tokens if KNOWN.piece(token) in marks.ALL]
    assert control == [S.bos, S.user, S.user, S.assistant, S.think_end, S.eos]


def test_answers_given_as_text() -> None:
    for given, expected in (
        ("plain", [S.think_end, *text("plain")]),
        ("</think>plain", [S.think_end, *text("plain")]),
        ("<think>why</think>plain", [S.think, *text("why"), S.think_end, *text("plain")]),
        ("<think>why", [S.think, *text("why")]),
        ("a </think> b", [S.think_end, *text("a </think> b")]),
    ):
        transcript = chat()
        transcript.add_assistant(given)
        assert transcript.tokens == [S.bos, S.assistant, *expected, S.eos]


def test_rollback_goes_to_before_the_last_user_message() -> None:
    transcript = chat(system="s")
    start = transcript.tokens
    transcript.add_user("one")
    transcript.begin_answer()
    transcript.add_answer_tokens([5])
    transcript.close()
    first = transcript.tokens
    transcript.add_user("two")
    transcript.begin_answer()
    transcript.add_answer_tokens([6])
    transcript.rollback()
    assert transcript.tokens == first
    transcript.rollback()
    assert transcript.tokens == start
    transcript.rollback()
    assert transcript.tokens == start


def test_changing_the_effort_exchanges_only_its_text() -> None:
    transcript = chat("none", "sys")
    transcript.add_user("hi")
    before = transcript.tokens
    transcript.set_effort("high")
    assert (transcript.tokens, transcript.effort) == (before, "high")
    transcript.set_effort("max")
    assert transcript.tokens == [S.bos, *text(EFFORT_ABSOLUTE_MAXIMUM), *before[1:]]
    transcript.set_effort("none")
    assert transcript.tokens == before


def test_the_profile_chooses_the_text() -> None:
    assert chat("high", profile="official").tokens == [S.bos, *text(EFFORT_ABSOLUTE_MAXIMUM)]
    assert chat("max", profile="official").tokens == [S.bos, *text(EFFORT_BEYOND_MAXIMUM)]
    assert chat("low", profile="official").tokens == [S.bos]


def test_a_rendered_transcript_keeps_its_head_and_its_marks() -> None:
    first = f"{marks.BOS}S{marks.USER}a{marks.ASSISTANT}{marks.THINK_END}b{marks.EOS}"
    rendered = f"{first}{marks.USER}c{marks.ASSISTANT}{marks.THINK}"
    assert is_rendered(rendered)
    assert not is_rendered(" " + rendered)
    transcript = Transcript.from_rendered(KNOWN, rendered, effort="none", profile="official")
    assert transcript.tokens == KNOWN.encode_rendered(rendered)
    assert transcript.thinking
    transcript.set_effort("max")
    assert transcript.tokens == KNOWN.encode_rendered(rendered)
    transcript.rollback()
    assert transcript.tokens == KNOWN.encode_rendered(first)
    transcript.rollback()
    assert transcript.tokens == [S.bos, *text("S")]


def test_a_rendered_transcript_without_marks() -> None:
    transcript = Transcript.from_rendered(KNOWN, f"{marks.BOS}once upon", effort="high", profile="preview")
    assert not transcript.thinking
    transcript.rollback()
    assert transcript.tokens == [S.bos, *text("once upon")]
