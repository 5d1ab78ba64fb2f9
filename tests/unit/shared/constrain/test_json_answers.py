"""Whatever the logits, an answer under a grammar is valid JSON of its schema, unless it was cut short."""

from __future__ import annotations

import json
import re
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.constrain.call_opener import call_opener
from shared.constrain.grammar import Grammar, any_json_object, json_grammar
from shared.constrain.matcher import Matcher, opening
from shared.constrain.turn_masks import AnswerForm
from shared.constrain.vocabulary import mask_vocabulary
from shared.generate import Generation, GenerationSettings
from shared.sampling import GREEDY, Sampling
from shared.scripted.vocabulary import tokenizer
from shared.text import marks
from shared.text.messages import ToolSet
from shared.text.tokenizer import Tokenizer
from shared.text.turn import Turn
from tests.support.json_schemas import json_schemas
from tests.support.random_logits import RandomLogitsSession
from tests.support.vocabularies import tiny_tokenizer

VOCABULARIES = {"bytes": tokenizer, "tiny": tiny_tokenizer}
SAMPLINGS = [Sampling(), GREEDY, Sampling(temperature=5, min_p=0), Sampling(top_k=1), Sampling(top_p=0.3)]
TOOLS = ToolSet([{"name": "bash"}, {"name": "read"}])


def answer(
    words: Tokenizer,
    grammar: Grammar,
    session: RandomLogitsSession,
    *,
    thinking: bool = False,
    tools: ToolSet | None = None,
    budget: int = 3000,
    **chosen: Any,
) -> tuple[Turn, Generation]:
    turn = Turn(thinking=thinking, tools=tools, verbatim=True)
    call = None if tools is None else call_opener(words, sorted(tools.names()))
    vocabulary = mask_vocabulary(words)
    form = AnswerForm(vocabulary, words.specials.think_end, Matcher(vocabulary, grammar), call)
    generation = Generation(
        session,  # type: ignore[arg-type]
        words,
        turn,
        GenerationSettings(**{"sampling": Sampling(), "seed": 1} | chosen, max_tokens=budget),
        masks=form.begin(thinking=thinking),
    )
    for _ in generation:
        pass
    return turn, generation


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
@settings(max_examples=40)
@given(json_schemas(), st.integers(0, 1 << 30), st.sampled_from(SAMPLINGS), st.booleans())
def test_every_answer_is_valid(
    vocabulary: str, schema: Any, seed: int, sampling: Sampling, look_ahead: bool
) -> None:
    words = VOCABULARIES[vocabulary]()
    session = RandomLogitsSession(words, seed)
    turn, generation = answer(words, json_grammar(schema), session, sampling=sampling, look_ahead=look_ahead)
    assert session.tokens[1:] == generation.tokens
    assert not set(generation.tokens) & set(mask_vocabulary(words).control)
    if generation.cause == "length":
        assert generation.finish_reason == "length"
        return
    assert (generation.cause, generation.finish_reason) == ("eos", "stop")
    jsonschema.validate(json.loads(turn.content), schema)


@settings(max_examples=40)
@given(json_schemas(), st.integers(0, 1 << 30), st.integers(0, 30))
def test_a_budget_cuts_what_is_valid_so_far(schema: Any, seed: int, budget: int) -> None:
    words, grammar = tokenizer(), json_grammar(schema)
    turn, generation = answer(words, grammar, RandomLogitsSession(words, seed), budget=budget)
    assert generation.completion_tokens <= budget
    if generation.cause == "eos":
        jsonschema.validate(json.loads(turn.content), schema)
        return
    assert (generation.finish_reason, generation.completion_tokens) == ("length", budget)
    matcher = Matcher(mask_vocabulary(words), grammar)
    for token in generation.tokens:
        assert matcher.allowed()[token]
        matcher.take(token)


@settings(max_examples=25)
@given(st.integers(0, 1 << 30), st.booleans())
def test_any_object(seed: int, look_ahead: bool) -> None:
    words = tokenizer()
    turn, _ = answer(words, any_json_object(), RandomLogitsSession(words, seed), look_ahead=look_ahead)
    assert isinstance(json.loads(turn.content), dict)


@settings(max_examples=25)
@given(json_schemas(), st.integers(0, 1 << 30))
def test_thinking_is_free_but_has_to_end_before_the_answer_does(schema: Any, seed: int) -> None:
    words = tokenizer()
    # Left alone, this model ends its turn before it has closed its thinking.
    session = RandomLogitsSession(words, seed, favoured=[words.specials.eos, words.specials.think_end])
    turn, generation = answer(words, json_grammar(schema), session, thinking=True, sampling=GREEDY)
    assert generation.cause == "eos"
    assert generation.tokens.count(words.specials.think_end) == 1
    assert generation.reasoning_tokens == generation.tokens.index(words.specials.think_end) + 1
    jsonschema.validate(json.loads(turn.content), schema)


@settings(max_examples=25)
@given(json_schemas(), st.integers(0, 1 << 30), st.booleans())
def test_with_tools_an_answer_is_json_or_a_call(schema: Any, seed: int, calls: bool) -> None:
    words = tokenizer()
    wanted = [ord("\n")] if calls else []
    session = RandomLogitsSession(words, seed, favoured=wanted)
    turn, generation = answer(
        words, json_grammar(schema), session, tools=TOOLS, budget=100 if calls else 3000
    )
    assert calls <= (generation.tokens[0] == ord("\n"))
    if generation.tokens[0] == ord("\n"):
        opener = f'\n\n<{marks.DSML}tool_calls>\n<{marks.DSML}invoke name="'.encode()
        assert words.decode(generation.tokens).startswith((opener + b'bash">\n', opener + b'read">\n'))
    else:
        assert generation.cause == "eos"
        jsonschema.validate(json.loads(turn.content), schema)


def test_markup_in_a_string_is_part_of_it() -> None:
    value = f"<think>`</think>```\n<{marks.DSML}tool_calls> </{marks.DSML}parameter>"
    words = tokenizer()
    for tools in (None, TOOLS):
        session = RandomLogitsSession(words, 1, favoured=[ord('"')])
        turn, _ = answer(words, json_grammar({"const": value}), session, tools=tools)
        assert json.loads(turn.content) == value
        assert not turn.calls


def test_no_mask_is_empty_or_allows_a_control_token_but_the_end() -> None:
    words = tokenizer()
    vocabulary = mask_vocabulary(words)
    control = [token for token in vocabulary.control if token != vocabulary.end]
    for seed in range(20):
        session = RandomLogitsSession(words, seed)
        answer(words, any_json_object(), session)
        for mask in session.masks:
            assert mask is not None
            assert mask.any()
            assert not mask[control].any()
        assert [bool(mask[vocabulary.end]) for mask in session.masks if mask is not None].count(True) == 1


def test_a_schema_that_leads_nowhere_is_noticed_before_anything_is_written() -> None:
    words = mask_vocabulary(tokenizer())
    endless = {"$defs": {"x": {"$ref": "#/$defs/x"}}, "$ref": "#/$defs/x"}
    assert not opening(words, json_grammar(endless))
    assert opening(words, any_json_object())


def test_white_space_cannot_go_on_for_ever() -> None:
    words = tokenizer()
    for favoured in (b" ", b"\t", b"\n", b"\r\n \t"):
        session = RandomLogitsSession(words, 3, favoured=list(favoured))
        schema = {"type": "array", "items": {"const": 5}, "minItems": 2, "maxItems": 2}
        turn, generation = answer(words, json_grammar(schema), session)
        assert generation.cause == "eos"
        assert json.loads(turn.content) == [5, 5]
        assert 1 <= max(map(len, re.findall(r"\s+", turn.content))) <= 82
