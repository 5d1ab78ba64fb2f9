"""What an answer has to be for what was asked: JSON, a call of a tool, either of them, or anything.

Spec: chat §5.4. Knows no wire format and no thread.
"""

from __future__ import annotations

from shared.constrain.call_opener import CallOpener, call_opener
from shared.constrain.grammar import Grammar
from shared.constrain.matcher import opening
from shared.constrain.turn_masks import AnswerForm
from shared.constrain.vocabulary import mask_vocabulary
from shared.errors import RequestError
from shared.text.messages import ToolSet
from shared.text.tokenizer import Tokenizer


def answer_form(
    tokenizer: Tokenizer, json: Grammar | None, tools: ToolSet | None, required: frozenset[str]
) -> AnswerForm | None:
    """None where the model may answer as it likes. `required` holds the names of which one has to be called;
    with JSON any of the `tools` may be called instead.

    Raises RequestError for JSON that cannot even begin. The first form for a tokenizer may take seconds.
    """
    if json is None and not required:
        return None
    vocabulary = mask_vocabulary(tokenizer)
    matcher = None if json is None else opening(vocabulary, json)
    if json is not None and matcher is None:
        raise RequestError(
            "the JSON schema of the answer cannot be enforced: nothing satisfies it, or it is too large"
        )
    callable_tools = required or (tools.names() if tools is not None else frozenset())
    call: CallOpener | None = None
    if tools is not None and callable_tools:
        call = call_opener(tokenizer, [name for name in _names(tools) if name in callable_tools])
    return AnswerForm(vocabulary, tokenizer.specials.think_end, matcher, call, bool(required))


def _names(tools: ToolSet) -> list[str]:
    """In the client's order."""
    names = (schema.get("name") for schema in tools)
    return [name for name in names if isinstance(name, str)]
