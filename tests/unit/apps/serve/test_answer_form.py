"""Which form an answer gets for what was asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from apps.serve.answer_form import answer_form
from shared.constrain.grammar import any_json_object, json_grammar
from shared.errors import RequestError
from shared.scripted.vocabulary import tokenizer
from shared.text.messages import ToolSet

WORDS = tokenizer()
TOOLS = ToolSet([{"name": "b"}, {"type": "web_search"}, {"name": ["x"]}, {"name": "a"}, {"name": "b"}])
NONE: frozenset[str] = frozenset()


@dataclass
class Calm:
    held_call: bool = False


def forced(form: Any) -> bytes:
    """The longest beginning that leaves no choice."""
    masks, data = form.begin(thinking=False), b""
    while (mask := masks.allowed(Calm())) is not None and mask.sum() == 1:
        token = int(mask.argmax())
        masks.take(token)
        data += WORDS.token_bytes(token)
    return data


def test_what_is_left_to_the_model_has_no_form() -> None:
    assert answer_form(WORDS, None, None, NONE) is None
    assert answer_form(WORDS, None, TOOLS, NONE) is None


def test_a_named_tool_and_any_of_them() -> None:
    assert forced(answer_form(WORDS, None, TOOLS, frozenset(["a"]))).endswith(b'invoke name="a">\n')
    assert forced(answer_form(WORDS, None, TOOLS, frozenset(["a", "b"]))).endswith(b'invoke name="')


def test_json_with_tools_leaves_the_choice_and_without_them_none() -> None:
    assert forced(answer_form(WORDS, any_json_object(), None, NONE)).startswith(b"{")
    for tools, first in ((TOOLS, b"\n{"), (ToolSet([{"type": "web_search"}]), b"{")):
        form = answer_form(WORDS, any_json_object(), tools, NONE)
        assert form is not None
        mask = form.begin(thinking=False).allowed(Calm())
        assert mask is not None
        assert {token for token in range(WORDS.vocabulary_size) if mask[token]} == set(first)


def test_json_that_cannot_begin_is_refused() -> None:
    endless = json_grammar({"$defs": {"x": {"$ref": "#/$defs/x"}}, "$ref": "#/$defs/x"})
    with pytest.raises(RequestError, match="nothing satisfies it"):
        answer_form(WORDS, endless, None, NONE)
