"""One turn that a client asked for, in the form every dialect is reduced to.

Owns rendering and the checks that need no engine. Knows no wire format and no thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from apps.serve.answer_form import answer_form
from apps.serve.recall import recall_calls
from apps.serve.settings import ServerSettings
from apps.serve.tool_results import tool_tail
from shared.constrain.grammar import Grammar
from shared.constrain.turn_masks import AnswerForm
from shared.errors import ContextFullError
from shared.generate import GenerationSettings
from shared.kv.live.prompt import Prompt
from shared.kv.live.tool_memory import ReplayCounts, ToolMemory
from shared.kv.live.tool_tail import TailSource, ToolTail
from shared.kv.store.store import KvStore
from shared.text.effort import Effort
from shared.text.messages import Message, ToolSet
from shared.text.template import render_chat
from shared.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What parsing and answering need to know of the loaded model; never changes."""

    name: str
    id: str
    effort_profile: str
    context: int
    tokenizer: Tokenizer


# The endpoint a turn came through; also how the log and the trace name it.
AskKind = Literal["chat", "completion", "messages", "responses"]

# The APIs that tie results of tools to calls by their ids alone.
_TAIL_SOURCES: Final[dict[AskKind, TailSource]] = {
    "responses": "responses-tool-output",
    "messages": "anthropic-tool-output",
}
_INPUT_FIELDS: Final[dict[AskKind, str]] = {"completion": "prompt", "responses": "input"}


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """Whether the model may, or must, call one of the offered tools; `name` says which one."""

    mode: Literal["none", "auto", "required", "named"] = "auto"
    name: str | None = None

    def required(self, tools: ToolSet | None) -> frozenset[str]:
        """The tools of which one has to be called; none if nothing has to."""
        if tools is None or self.mode not in ("required", "named"):
            return frozenset()
        return tools.names() if self.name is None else frozenset([self.name])


@dataclass(frozen=True, slots=True)
class Ask:
    """A parsed request: the normalised history and what was asked about it.

    `tools` are those the model may call, None if it may call none. `json` is what its answer has to be unless
    it is a call. `note` is for the log: what was not granted as asked, `include_usage` for who encodes a
    stream. `shows_reasoning`: the client is shown the reasoning and may send it back.
    """

    kind: AskKind
    model: str
    stream: bool
    messages: Sequence[Message]
    tools: ToolSet | None
    effort: Effort
    generation: GenerationSettings
    note: str | None = None
    include_usage: bool = False
    tool_choice: ToolChoice = ToolChoice()
    json: Grammar | None = None
    shows_reasoning: bool = True

    @property
    def input_field(self) -> str:
        """The field of the body that the prompt is made of."""
        return _INPUT_FIELDS.get(self.kind, "messages")

    @property
    def binds_calls(self) -> bool:
        """Results of tools belong to the answer whose calls they name, whatever stands around them."""
        return self.kind in _TAIL_SOURCES

    def tail(self, *, control_tokens_in_content: bool) -> ToolTail | None:
        """The results that the history ends with, if their calls name a live answer."""
        source = _TAIL_SOURCES.get(self.kind)
        if source is None:
            return None
        return tool_tail(
            self.messages,
            source,
            effort=self.effort,
            control_tokens_in_content=control_tokens_in_content,
        )

    @property
    def call_id_prefix(self) -> str:
        """How the ids of this dialect's tool calls begin."""
        return "toolu_" if self.kind == "messages" else "call_"


@dataclass(frozen=True, slots=True)
class TurnRequest:
    """A rendered prompt and what was asked about it. `form` is None where the answer is free, `replay` where
    calls are never replayed; `body` holds the client's own words where a trace wants them."""

    ask: Ask
    id: str
    prompt: Prompt
    replay: ReplayCounts | None = None
    body: bytes | None = None
    form: AnswerForm | None = None

    @property
    def thinking(self) -> bool:
        return self.ask.effort != "none"

    @property
    def tool_context(self) -> bool:
        """Tools are offered, or the history holds calls or results: reasoning of all turns is kept."""
        return self.ask.tools is not None or any(
            message.tool_calls or message.role in ("tool", "function") for message in self.ask.messages
        )

    @property
    def bare_calls(self) -> int:
        """Answers with calls for which the prompt of a thinking turn has no reasoning."""
        if not self.thinking:
            return 0
        if self.replay is not None:
            return self.replay.bare
        return sum(bool(message.tool_calls) and not message.reasoning for message in self.ask.messages)

    @property
    def client_sends_reasoning(self) -> bool:
        """This client sends the reasoning of old answers back, or did so at least once."""
        return any(message.role == "assistant" and message.reasoning for message in self.ask.messages)

    @property
    def may_retry(self) -> bool:
        """A whole answer can hide a failed tool call and try again; a stream cannot."""
        return not self.ask.stream and self.ask.tools is not None


def render(
    ask: Ask, model: ModelFacts, settings: ServerSettings, memory: ToolMemory, store: KvStore | None = None
) -> tuple[Prompt, ReplayCounts | None]:
    """The prompt of any length, and where the calls in it came from; None where calls are never replayed.
    Calls that only the `store` knows are replayed too."""
    if settings.exact_replay and store is not None:
        recall_calls(ask.messages, memory, store)
    messages, replay = memory.replay(ask.messages) if settings.exact_replay else (list(ask.messages), None)
    segments = render_chat(
        messages,
        ask.tools,
        effort=ask.effort,
        profile=model.effort_profile,
        control_tokens_in_content=settings.control_tokens_in_content,
    )
    tail = ask.tail(control_tokens_in_content=settings.control_tokens_in_content)
    return Prompt(segments, model.tokenizer.encode_segments(segments), tail), replay


def prepare(
    ask: Ask,
    request_id: str,
    model: ModelFacts,
    settings: ServerSettings,
    memory: ToolMemory,
    body: bytes | None = None,
    store: KvStore | None = None,
) -> TurnRequest:
    """Render and tokenise. Raises ContextFullError if the prompt does not leave room for a token, and
    RequestError if no answer can have the form asked for."""
    prompt, replay = render(ask, model, settings, memory, store)
    if len(prompt.tokens) >= model.context:
        raise ContextFullError(len(prompt.tokens), model.context)
    form = answer_form(model.tokenizer, ask.json, ask.tools, ask.tool_choice.required(ask.tools))
    return TurnRequest(ask, request_id, prompt, replay, body, form)
