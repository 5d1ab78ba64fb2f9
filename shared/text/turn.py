"""The turn machine: a model's output bytes become events, the same whatever the cuts.

Owns how thinking, content and a tool block follow each other and what the turn comes to; the text of a
channel and the inside of a block have their own files. Knows nothing of tokens, sampling, endpoints or the
terminal.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from enum import Enum
from typing import Final

from shared.text.byte_source import ByteSource
from shared.text.channel import THINK_END, Channel, Found
from shared.text.channel_output import ChannelOutput
from shared.text.dsml_reader import BlockReader
from shared.text.dsml_tags import Tag
from shared.text.dsml_values import DecodeState, Unescape
from shared.text.events import EndCause, FinishReason, TextDelta, ThinkingDelta, TurnEvent, joined
from shared.text.messages import ToolCall, ToolSet

__all__ = ["NOTICE", "DecodeState", "Turn"]

NOTICE: Final = "A tool call could not be read and was not run."


class _Mode(Enum):
    THINKING = "thinking"
    HELD = "held"
    TEXT = "text"
    TOOL = "tool"
    DONE = "done"


class _Verbatim(Enum):
    """Whether the answer is passed on as it is; with tools its first byte decides."""

    NO = "no"
    UNDECIDED = "undecided"
    YES = "yes"


def _random_id() -> str:
    return f"call_{secrets.token_hex(16)}"


class Turn:
    """One turn of the model. `feed` bytes, then `finish` once; both return the events that became certain.

    `tools` None means that no tools are active: nothing opens a block. A set without names means that they
    are not known here: any name may open a plain block. `verbatim`: an answer that is no block is passed on
    byte for byte, whatever code or markup it seems to hold: it is JSON. spec: chat §3.
    """

    def __init__(
        self,
        *,
        thinking: bool,
        tools: ToolSet | None,
        unescape: Unescape = "closing-tag-only",
        new_id: Callable[[], str] = _random_id,
        verbatim: bool = False,
    ) -> None:
        self.finish_reason: FinishReason = "stop"
        self.raw_block: bytes | None = None  # the block as sampled, if it may be replayed
        self.notice = ""  # the content that tells of calls which could not be read
        self.thinking_closed = not thinking
        self._tools = tools
        self._unescape = unescape
        self._new_id = new_id
        self._ids: set[str] = set()
        self._events: list[TurnEvent] = []
        self._source = ByteSource()
        self._final = False
        self._cause: EndCause = "eos"
        self._mode = _Mode.THINKING if thinking else _Mode.TEXT
        self._verbatim = _Verbatim.UNDECIDED if verbatim else _Verbatim.NO
        may_open = self._may_open if tools is not None else None
        self._reasoning = ChannelOutput(ThinkingDelta, self._events.append, tools is not None)
        self._content = ChannelOutput(TextDelta, self._events.append, tools is not None)
        self._thoughts = Channel(self._reasoning, thinking=True, may_open=may_open)
        self._answer = Channel(self._content, thinking=False, may_open=may_open)
        self._reader: BlockReader | None = None
        self._block = bytearray()  # the bytes of the block
        self._lead = b""  # white space before it
        self._block_events: list[TurnEvent] = []  # of a held block
        self._after = bytearray()  # what follows a held block
        self._close_known = False  # `</think>` is known to come
        self._cut_short = False  # the turn ended before the block did

    # What callers ask

    @property
    def reasoning(self) -> str:
        return self._reasoning.text

    @property
    def content(self) -> str:
        return self._content.text

    @property
    def calls(self) -> list[ToolCall]:
        """The whole calls so far; those of a held block only once they are delivered."""
        return list(self._reader.calls) if self._reader and self._mode is not _Mode.HELD else []

    @property
    def repaired(self) -> bool:
        """Whether the block was read only with repairs."""
        return self._reader is not None and self._reader.repaired

    @property
    def decode_state(self) -> DecodeState:
        """What the next byte belongs to."""
        return self._reader.state if self._reader else DecodeState.OUTSIDE

    @property
    def should_stop(self) -> bool:
        """A block has ended in content: nothing more is wanted."""
        return self._mode is _Mode.DONE

    @property
    def held_call(self) -> bool:
        """A complete block stands in thinking that is still open."""
        return self._mode is _Mode.HELD and self._reader is not None and self._reader.complete

    # Input

    def feed(self, data: bytes) -> list[TurnEvent]:
        """More output of the model."""
        if self._mode is not _Mode.DONE:
            self._source.push(data)
            self._pump()
        return self._taken()

    def finish(self, cause: EndCause) -> list[TurnEvent]:
        """The turn ends because of `cause`; everything held goes out."""
        self._final = True
        self._cause = cause
        self._pump()
        while not self._end():
            self._pump()
        self._conclude()
        return self._taken()

    def _taken(self) -> list[TurnEvent]:
        events = joined(self._events)
        self._events.clear()
        return events

    def _pump(self) -> None:
        """Let the current mode read until nothing is left that it could read."""
        source = self._source
        source.load()
        while self._mode is not _Mode.DONE:
            before = (self._mode, source.window, source.pos)
            self._step(self._final and source.exhausted)
            stuck = before == (self._mode, source.window, source.pos)
            if (
                (stuck or source.pos == len(source.window))
                and not source.load()
                and (stuck or not self._final)
            ):
                return

    def _step(self, final: bool) -> None:
        if self._mode is _Mode.HELD:
            self._held_step(final)
        elif self._mode is _Mode.TOOL:
            self._tool_step(final)
        elif self._mode is _Mode.TEXT and self._verbatim is not _Verbatim.NO:
            self._verbatim_step(final)
        else:
            found = self._channel.step(self._source, final)
            if isinstance(found, Tag):
                self._open_block(found)
            elif found is Found.THINK_END:
                self.thinking_closed = True
                self._mode = _Mode.TEXT

    def _verbatim_step(self, final: bool) -> None:
        source = self._source
        if self._verbatim is _Verbatim.UNDECIDED:
            begin = source.rest.lstrip()
            if not begin and not final:
                return
            # No JSON begins as a block does.
            block = self._tools is not None and begin.startswith(b"<")
            self._verbatim = _Verbatim.NO if block else _Verbatim.YES
        if self._verbatim is _Verbatim.YES:
            self._content.write(source.take(len(source.window)))

    @property
    def _channel(self) -> Channel:
        return self._thoughts if self._mode is _Mode.THINKING else self._answer

    def _may_open(self, name: str) -> bool:
        names = self._tools.names() if self._tools is not None else frozenset()
        return not names or name in names

    # Blocks

    def _open_block(self, opener: Tag) -> None:
        """A block begins at the window's position."""
        assert self._tools is not None
        held = self._mode is _Mode.THINKING
        self._block_events = []
        emit = self._block_events.append if held else self._events.append
        self._reader = BlockReader(opener, self._tools, self._unescape, self._unique_id, emit)
        if not held:
            self._lead = self._answer.close_before_block()
        self._block = self._source.record()
        self._after = bytearray()
        self._mode = _Mode.HELD if held else _Mode.TOOL

    def _unique_id(self) -> str:
        while (id := self._new_id()) in self._ids:
            pass
        self._ids.add(id)
        return id

    def _tool_step(self, final: bool) -> None:
        assert self._reader is not None
        if self._reader.step(self._source, final and self._cause == "eos"):
            self._end_tool()

    def _end_tool(self) -> None:
        self._keep_raw(self._lead)
        self._source.stop_record()
        self._source.clear()
        self._mode = _Mode.DONE

    def _keep_raw(self, lead: bytes) -> None:
        reader = self._reader
        if reader and reader.canonical and not reader.lost and reader.calls:
            self.raw_block = lead + bytes(self._block)

    def _held_step(self, final: bool) -> None:
        """Read a block in thinking as far as `</think>` does not take it back."""
        source, reader = self._source, self._reader
        assert reader is not None
        seen = self._after if reader.done else self._block
        carried = bytes(seen[-len(THINK_END) + 1 :])
        found = (carried + source.rest).find(THINK_END)
        if found >= 0:
            self._take_back(found - len(carried))
            return
        self._read_held(final)

    def _read_held(self, final: bool) -> None:
        source, reader = self._source, self._reader
        assert reader is not None
        if reader.done:
            self._after += source.take(len(source.window))
        elif reader.step(source, final and self._cause == "eos"):
            source.stop_record()
            if not reader.complete or self._close_known:
                self._return_block()
            else:
                self._after += source.take(len(source.window))

    def _take_back(self, offset: int) -> None:
        """`</think>` stands `offset` bytes behind the window's position, or before it if negative."""
        source, reader = self._source, self._reader
        assert reader is not None
        if offset > 0:
            source.cut(source.pos + offset)
            self._read_held(final=False)
            if self._mode is not _Mode.HELD:
                return
            source.take(len(source.window))
        else:
            rest = source.take(source.pos + offset + len(THINK_END))
            if reader.done:
                self._after += rest
            del (self._after if reader.done else self._block)[-len(THINK_END) :]
            source.stop_record()
            source.push_back(THINK_END)
        self._close_known = True
        self._return_block()

    def _return_block(self) -> None:
        """A held block was none: it is reasoning, without its tags, and what followed it is read again."""
        assert self._reader is not None
        source, block = self._source, bytes(self._block)
        source.stop_record()
        source.push_back(bytes(self._after))
        source.push_back(block)
        self._thoughts.reopen(len(block), plain_tags=self._reader.plain)
        self._reader = None
        self._mode = _Mode.THINKING

    def _deliver_held(self) -> None:
        """Thinking ends at the opener of the held block."""
        self._lead = self._thoughts.close_before_block()
        self.thinking_closed = True
        self._events += self._block_events
        self._end_tool()

    # The end

    def _end(self) -> bool:
        """Settle what is still open; False if bytes have to be read again."""
        if self._mode is _Mode.DONE:
            return True
        if self._reader:
            return self._end_block(self._reader)
        found = self._channel.end(self._source, by_end_token=self._cause == "eos")
        if isinstance(found, Tag):
            self._open_block(found)
        return found is Found.SETTLED

    def _end_block(self, reader: BlockReader) -> bool:
        self._cut_short = not reader.done
        if not reader.done:
            reader.finish(self._source, ended=self._cause == "eos")
        if self._mode is _Mode.TOOL:
            self._end_tool()
        elif reader.complete:
            self._deliver_held()
        else:
            self._return_block()
            return False
        return True

    def _conclude(self) -> None:
        reader = self._reader
        if reader is None:
            self.finish_reason = "length" if self._cause == "length" else "stop"
            return
        if reader.lost or not reader.calls:
            self._tell(reader)
        if self._cause == "length" and (reader.cut or (self._cut_short and not reader.calls)):
            self.finish_reason = "length"
        elif reader.calls:
            self.finish_reason = "tool_calls"

    def _tell(self, reader: BlockReader) -> None:
        """Say in content what could not be read, without any markup."""
        lost = [text for text in reader.lost if text]
        if not reader.calls and reader.loose.strip():
            lost.append(reader.loose.decode("utf-8", "replace").strip())
        before = self.content
        text = ("\n\n" if before else "") + "\n".join([NOTICE, *lost])
        data = text.encode()
        self._mode = _Mode.TEXT
        self._source.clear()
        self._source.push_back(data)
        self._answer.reopen(len(data), plain_tags=False)
        self._pump()
        self._answer.close()
        self._mode = _Mode.DONE
        self.notice = self.content[len(before) :]
