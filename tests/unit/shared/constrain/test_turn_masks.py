"""Where in a turn a form holds, seen in the masks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.constrain.call_opener import call_opener
from shared.constrain.grammar import any_json_object
from shared.constrain.matcher import Matcher
from shared.constrain.turn_masks import AnswerForm, TurnMasks
from shared.constrain.vocabulary import mask_vocabulary
from shared.scripted.vocabulary import CONTROL, tokenizer, tokens_of
from shared.text import marks
from shared.text.dsml_write import canonical_block
from shared.text.messages import ToolCall
from shared.text.tokenizer import Tokenizer
from tests.support.vocabularies import split_tokenizer, tiny_tokenizer, v4_tokenizer

WORDS = tokenizer()
THINK_END = WORDS.specials.think_end
EOS = WORDS.specials.eos


@dataclass
class State:
    held_call: bool = False


def form(*names: str, json: bool = False, required: bool = False, words: Tokenizer = WORDS) -> AnswerForm:
    vocabulary = mask_vocabulary(words)
    return AnswerForm(
        vocabulary,
        words.specials.think_end,
        Matcher(vocabulary, any_json_object()) if json else None,
        call_opener(words, names) if names else None,
        required,
    )


def allowed(masks: TurnMasks, state: State | None = None) -> set[int] | None:
    mask = masks.allowed(state or State())
    return None if mask is None else set(map(int, np.flatnonzero(mask)))


def forced(masks: TurnMasks) -> bytes:
    """What the masks leave no choice about."""
    data = b""
    while (tokens := allowed(masks)) is not None and len(tokens) == 1:
        (token,) = tokens
        masks.take(token)
        data += WORDS.token_bytes(token)
    return data


OPEN = f'\n\n<{marks.DSML}tool_calls>\n<{marks.DSML}invoke name="'.encode()


def test_a_named_tool_is_forced_to_the_end_of_its_name_and_nothing_further() -> None:
    masks = form('a<"é', required=True).begin(thinking=False)
    assert forced(masks) == OPEN + 'a&lt;&quot;é">\n'.encode()
    assert allowed(masks) is None
    masks.take(ord("x"))
    assert allowed(masks) is None


def test_one_of_several_tools_is_chosen_by_the_model() -> None:
    masks = form("read", "reap", "re", "read", required=True).begin(thinking=False)
    assert forced(masks) == OPEN + b"re"
    assert allowed(masks) == set(b'a"')
    masks.take(ord("a"))
    assert allowed(masks) == set(b"dp")
    masks.take(ord("p"))
    assert forced(masks) == b'">\n'
    assert allowed(masks) is None


@pytest.mark.parametrize("words", [tiny_tokenizer, split_tokenizer, v4_tokenizer])
@pytest.mark.parametrize("name", ["bash", "_x", "mcp__a.b", "读", "9"])
def test_the_forced_tokens_are_those_of_the_canonical_block(words: type[Tokenizer], name: str) -> None:
    vocabulary: Tokenizer = words()
    block = vocabulary.encode_rendered(canonical_block([ToolCall("", name, '{"k": "v"}')]))
    tokens = list(call_opener(vocabulary, [name]).tokens)
    assert block[: len(tokens)] == tokens
    several = list(call_opener(vocabulary, [name, "other"]).tokens)
    assert block[: len(several)] == several
    assert vocabulary.decode(several) == OPEN.removesuffix(b'="')


def test_the_first_token_decides_between_json_and_a_call() -> None:
    both = form("bash", json=True)
    masks = both.begin(thinking=False)
    assert allowed(masks) == set(b"\n{")
    masks.take(ord("\n"))
    assert forced(masks) == OPEN[1:] + b'bash">\n'
    masks = both.begin(thinking=False)
    masks.take(ord("{"))
    assert allowed(masks) == set(b'\r\n\t "}')
    masks.take(ord("}"))
    assert allowed(masks) == {EOS}


def test_a_required_call_leaves_no_room_for_json() -> None:
    masks = form("bash", json=True, required=True).begin(thinking=False)
    assert forced(masks).endswith(b'bash">\n')


def test_thinking_is_free_until_it_ends_and_cannot_end_the_turn() -> None:
    masks = form(json=True).begin(thinking=True)
    everything = set(range(WORDS.vocabulary_size))
    for token in b"so </thin</thi < ":
        assert allowed(masks) == everything - {EOS}
        masks.take(token)
    masks.take(THINK_END)
    assert allowed(masks) == {ord("{")}


@given(st.lists(st.sampled_from(["<", "</", "think", "</think", ">", "</think>", "x", "</thi"]), max_size=8))
def test_thinking_ends_where_its_mark_does_however_it_is_spelt(pieces: list[str]) -> None:
    masks = form(json=True).begin(thinking=True)
    data = "".join(pieces)
    for piece in pieces:
        for token in piece.encode():
            if allowed(masks) == {ord("{")}:
                assert data.startswith("</think>") or "</think>" in data
                return
            masks.take(token)
    assert (allowed(masks) == {ord("{")}) == data.endswith("</think>")
    assert ("</think>" in data) == data.endswith("</think>")


def test_no_token_carries_text_across_the_end_of_thinking() -> None:
    words = Tokenizer.from_vocabulary([*WORDS_OF_BYTES, "k>{", "k>", "a</think>b", *marks.ALL], ())
    masks = form(json=True, words=words).begin(thinking=True)
    crossing, exact, whole = (256 + n for n in range(3))
    assert {crossing, exact} <= (allowed(masks) or set())
    assert whole not in (allowed(masks) or set())
    for token in b"</thin":
        masks.take(token)
    assert exact in (allowed(masks) or set())
    assert crossing not in (allowed(masks) or set())
    masks.take(exact)
    assert allowed(masks) == {ord("{")}


WORDS_OF_BYTES = [WORDS.piece(byte) for byte in range(256)]


def test_a_call_in_open_thinking_may_end_the_turn_unless_one_is_required() -> None:
    held = State(held_call=True)
    masks = form("bash", json=True).begin(thinking=True)
    assert allowed(masks, held) == set(range(WORDS.vocabulary_size))
    masks = form("bash", required=True).begin(thinking=True)
    assert allowed(masks, held) == {THINK_END}
    masks.take(THINK_END)
    assert forced(masks).endswith(b'bash">\n')


def test_each_attempt_begins_anew() -> None:
    required = form("bash", required=True)
    for _ in range(2):
        assert forced(required.begin(thinking=False)).endswith(b'bash">\n')
    either = form(json=True)
    for _ in range(2):
        masks = either.begin(thinking=False)
        assert allowed(masks) == {ord("{")}
        masks.take(ord("{"))
    with pytest.raises(ValueError, match="a form"):
        form().begin(thinking=False)


def test_control_tokens_are_known_by_their_spelling() -> None:
    control = mask_vocabulary(WORDS).control
    assert control == sorted(CONTROL.values())
    assert tokens_of("</think>")[0] in control
    real = v4_tokenizer()
    spelt = {real.piece(token) for token in mask_vocabulary(real).control}
    assert {marks.EOS, marks.THINK, "<|EOT|>", "<|place_holder_mm_span_0435|>"} <= spelt
    assert not spelt & {"<", "<|", "|>", "<dsml:", "think"}
