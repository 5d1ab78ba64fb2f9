"""Live slots over engines whose answers a test gives as tokens: prompts from messages, turns, figures."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from shared.kv.live.checkpoints import DEFAULT_CHECKPOINT_BYTES
from shared.kv.live.prefill import ALONE, Prefill
from shared.kv.live.prompt import Prompt
from shared.kv.live.slots import Slots
from shared.kv.live.start import Start
from shared.kv.live.tool_memory import ToolMemory
from shared.kv.store.model_identity import ModelIdentity
from shared.kv.store.policy import StoreSettings
from shared.kv.store.store import KvStore
from shared.session import Session
from shared.text.effort import Effort
from shared.text.messages import Message, ToolSet
from shared.text.template import render_chat
from shared.text.tokenizer import Tokenizer
from tests.support.scripted import scripted

# What a client does with an answer: sends it back, sends it back without its reasoning, or does not.
Ending = Literal["returns", "visible", "lost"]
SMALL = StoreSettings(
    min_tokens=64,
    cold_max_tokens=4000,
    continued_interval=1000,
    trim_tokens=8,
    align_tokens=256,
    durable=False,
)


class Figures(NamedTuple):
    """What a turn cost, in tokens."""

    source: str
    reused: int
    evaluated: int


class LiveTalk:
    """Slots over `sessions`, and turns on them. With a `folder` there is a store; `said` are its lines."""

    def __init__(
        self,
        sessions: Sequence[Session],
        tokenizer: Tokenizer,
        *,
        folder: Path | None = None,
        settings: StoreSettings = SMALL,
        tool_memory: ToolMemory | None = None,
        checkpoint_bytes: int = DEFAULT_CHECKPOINT_BYTES,
    ) -> None:
        self.tokenizer = tokenizer
        self.said: list[str] = []
        self.store: KvStore | None = None
        if folder is not None:
            self.store = KvStore(
                folder,
                ModelIdentity(0, 2, "0" * 64, "scripted"),
                settings,
                say=self.said.append,
                decode=tokenizer.decode,
            )
        self.slots = Slots(
            sessions,
            tokenizer,
            store=self.store,
            tool_memory=tool_memory,
            checkpoint_bytes=checkpoint_bytes,
        )
        self.last: Start | None = None

    @property
    def start(self) -> Start:
        """How the last turn began."""
        assert self.last is not None
        return self.last

    def prompt(
        self,
        messages: Sequence[Message],
        effort: Effort = "none",
        tools: ToolSet | None = None,
        **flags: bool,
    ) -> Prompt:
        segments = render_chat(messages, tools, effort=effort, profile="preview", **flags)
        return Prompt(segments, self.tokenizer.encode_segments(segments))

    def prefill(self, prompt: Prompt, **options: Any) -> Prefill:
        """Begin a turn and evaluate its prompt. Every save is on disk before the next step: none is dropped
        for a longer one."""
        options.setdefault("quantum", self._patient_quantum)
        self.last = self.slots.begin(prompt)
        prefill = Prefill(self.slots, self.last, **options)
        prefill.run()
        return prefill

    def turn(
        self,
        prompt: Prompt,
        answer: Iterable[int] | bytes = b"",
        *,
        ending: Ending = "returns",
        content: str = "",
        **options: Any,
    ) -> Figures:
        """A whole turn, with `answer` sampled: tokens, or bytes of which each becomes a token of its own."""
        reused, evaluated = self.prefill(prompt, **options).synced
        slot = self.start.slot
        before = slot.session.position
        for token in self.letters(answer) if isinstance(answer, bytes) else answer:
            if self.slots.while_decoding(slot, in_tool_call=False) is not None:
                self.flushed()
            slot.session.submit(token)
        slot.sampled(before)
        if ending == "returns":
            slot.answer_returns()
        elif ending == "visible":
            slot.remember_visible(prompt, content)
        self.slots.release(slot)
        return Figures(self.start.source, reused, evaluated)

    def _patient_quantum(self) -> int:
        if self.store is not None:
            self.store.flush()
        return ALONE

    def letters(self, text: bytes) -> list[int]:
        """One token for each byte: seldom how the tokenizer itself would write words."""
        return [token for byte in text for token in self.tokenizer.encode_text(bytes([byte]))]

    def live(self) -> bytes:
        """The text of the last turn's session."""
        return self.tokenizer.decode(self.start.slot.session.tokens)

    def flushed(self) -> list[str]:
        """The store's lines, everything written."""
        assert self.store is not None
        self.store.flush()
        return self.said

    def close(self) -> None:
        if self.store is not None:
            self.store.close()


def scripted_sessions(count: int = 1, context: int = 16384, **script: Any) -> tuple[list[Session], Tokenizer]:
    """Sessions of one scripted engine that plays nothing by itself, and its tokenizer: one token a byte."""
    engine = scripted(**{"after": "eos", "snapshot": {"fixed_bytes": 1000, "bytes_per_token": 20}, **script})
    return [engine.open_session(context) for _ in range(count)], engine.tokenizer


TalkMaker = Callable[..., LiveTalk]
