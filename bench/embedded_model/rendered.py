"""A conversation as token ids, with a mark on those that the model has to write itself."""

from __future__ import annotations

from dataclasses import dataclass

from bench.embedded_model.conversation import Conversation
from shared.text.segments import Segment
from shared.text.template import render_chat
from shared.text.tokenizer import Specials, Tokenizer

PROFILE = "preview"


@dataclass(frozen=True, slots=True)
class Tokens:
    """Ids of a whole conversation; `own[i]` says that id i is written by the model, end marks included."""

    ids: list[int]
    own: list[bool]


def segments_of(conversation: Conversation) -> list[Segment]:
    """The conversation as the product renders it, up to the end mark of the last answer."""
    rendered = render_chat(
        conversation.messages, conversation.tools, effort=conversation.effort, profile=PROFILE
    )
    return rendered[:-1]  # the renderer ends with the marks of a next answer


def tokens_of(conversation: Conversation, tokenizer: Tokenizer) -> Tokens:
    """The conversation as ids with their author."""
    ids = tokenizer.encode_segments(segments_of(conversation))
    return Tokens(ids, written_by_model(ids, tokenizer.specials))


def written_by_model(ids: list[int], specials: Specials) -> list[bool]:
    """Which ids stand behind an assistant's two opening marks, up to its end mark."""
    own, writing, marks_left = [], False, 0
    for token in ids:
        if marks_left:
            own.append(False)
            marks_left -= 1
            writing = marks_left == 0
            continue
        own.append(writing)
        if token == specials.assistant:
            marks_left = 1
        elif token == specials.eos:
            writing = False
    return own
