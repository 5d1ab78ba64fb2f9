"""The turn machine: a model's output bytes become events, the same whatever the cuts.

Owns the channels (thinking, content, tool block) and how they follow each other; code, tags, blocks and values
have their own files. Knows nothing of tokens, sampling, endpoints or the terminal.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable
from enum import Enum
from typing import Final

from shared.text import marks
from shared.text.byte_source import ByteSource
from shared.text.channel_output import ChannelOutput
from shared.text.code_spans import Code, CodeSpans
from shared.text.dsml_reader import BlockReader
from shared.text.dsml_tags import (
    CANONICAL_WRAPPER,
    Answer,
    Need,
    Tag,
    TagKind,
    plain_opener,
    plain_tag,
    stray_markup,
)
from shared.text.dsml_values import DecodeState, Unescape
from shared.text.events import EndCause, FinishReason, TextDelta, ThinkingDelta, TurnEvent
from shared.text.messages import ToolCall, ToolSet
from shared.text.stray import Suspended

__all__ = ["NOTICE", "DecodeState", "Turn"]

NOTICE: Final = "A tool call could not be read and was not run."

_THINK_END: Final = marks.THINK_END.encode()
_LINE_BREAK: Final = ord("\n")
_RUNS: Final = re.compile(rb"`+|~+")
_INTERESTING: Final = re.compile(rb"[<\xef`~\n]")
_MARKUP_START: Final = re.compile(rb"[<\xef]")
_CANDIDATES: Final = b"<\xef"


class _Mode(Enum):
    THINKING = "thinking"
    HELD = "held"
    TEXT = "text"
    TOOL = "tool"
    DONE = "done"


def _random_id() -> str:
    return f"call_{secrets.token_hex(16)}"


class Turn:
    """One turn of the model. `feed` bytes, then `finish` once; both return the events that became certain.

    `tools` None means that no tools are active: nothing opens a block. A set without names means that they are
    not known here: any name may open a plain block. spec: chat §3.
    """

    def __init__(
        self,
        *,
        thinking: bool,
        tools: ToolSet | None,
        unescape: Unescape = "closing-tag-only",
        new_id: Callable[[], str] = _random_id,
    ) -> None:
        self.finish_reason: FinishReason = "stop"
        self.raw_block: bytes | None = None
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
        self._reasoning = ChannelOutput(ThinkingDelta, self._events.append, tools is not None)
        self._content = ChannelOutput(TextDelta, self._events.append, tools is not None)
        self._code = CodeSpans()
        self._held: bytearray | None = None  # output held because it stands in undecided code
        self._held_opener: int | None = None  # in it, the first canonical opener that starts its line
        self._suspended = Suspended()
        self._opaque = 0  # bytes ahead that are text but for the markup in them
        self._opaque_plain = False  # and plain tags of ours are markup too
        self._reader: BlockReader | None = None
        self._block = bytearray()  # the bytes of the block
        self._block_events: list[TurnEvent] = []  # of a held block
        self._lead = b""  # white space before it
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
        events = list(self._events)
        self._events.clear()
        return events

    def _pump(self) -> None:
        """Let the current mode read until nothing is left that it could read."""
        while self._mode is not _Mode.DONE:
            before = (self._mode, self._source.window, self._source.pos)
            self._step(self._final and self._source.exhausted)
            if before == (self._mode, self._source.window, self._source.pos) and not self._source.load():
                return

    def _step(self, final: bool) -> None:
        if self._mode is _Mode.HELD:
            self._held_step(final)
        elif self._mode is _Mode.TOOL:
            self._tool_step(final)
        elif self._opaque:
            self._opaque_step(final)
        else:
            self._channel_step(final)

    # Thinking and text

    def _channel_step(self, final: bool) -> None:
        """Read the window as channel text until it ends, a block opens or reading has to start over."""
        source, code = self._source, self._code
        while source.pos < len(source.window):
            window, pos = source.window, source.pos
            match = _INTERESTING.search(window, pos)
            at = match.start() if match else len(window)
            if at > pos:
                self._plain(source.take(at))
                continue
            byte = window[pos]
            if byte in _CANDIDATES:
                if not self._candidate(final):
                    return
            elif byte == _LINE_BREAK:
                code.settle()
                if code.state is Code.SPAN and self._give_up_span():
                    return
                code.line_break()
                self._release_if_decided()
                self._out(source.take(pos + 1))
            else:
                run = _RUNS.match(window, pos)
                assert run is not None
                code.settle(byte)
                self._release_if_decided()
                code.run(byte, len(run[0]))
                self._out(source.take(run.end()))

    def _plain(self, text: bytes) -> None:
        """Text without anything special in it."""
        code = self._code
        if code.line_blank:
            body = text.lstrip(b" \t")
            code.blanks(len(text) - len(body))
            if body:
                code.text()
        else:
            code.text()
        self._release_if_decided()
        self._out(text)

    def _candidate(self, final: bool) -> bool:
        """Decide what stands at a `<` or the beginning of a bar; False when reading must pause or restart."""
        source, code = self._source, self._code
        window, pos = source.window, source.pos
        code.settle()
        self._release_if_decided()
        answer = self._recognise(window, pos, final)
        if answer is Need.MORE and not final:
            return False
        if not isinstance(answer, Tag):
            self._no_markup(window, pos)
            return True
        if self._mode is _Mode.THINKING and answer.raw == _THINK_END:
            return self._close_thinking()
        if code.state is not Code.NONE:
            self._markup_in_code(answer)
            return True
        if self._opens_block(answer):
            self._open_block(answer)
            return False
        source.take(pos + len(answer.raw))
        self._removed()
        return self._opaque == 0

    def _recognise(self, window: bytes, pos: int, final: bool) -> Answer:
        stray = stray_markup(window, pos, final=final)
        if isinstance(stray, Tag) or self._tools is None or not self._code.line_blank:
            return stray
        if window[pos] != ord("<"):
            return stray
        return plain_opener(window, pos, self._may_open) or stray

    def _may_open(self, name: str) -> bool:
        names = self._tools.names() if self._tools else frozenset()
        return not names or name in names

    def _opens_block(self, tag: Tag) -> bool:
        return self._tools is not None and not tag.closing and tag.kind is not TagKind.CONTROL

    def _no_markup(self, window: bytes, pos: int) -> None:
        """The byte at `pos` begins nothing: text, unless a removal behind it could make it begin something."""
        match = _MARKUP_START.search(window, pos + 1)
        if match and self._code.state is Code.NONE and self._suspended.try_add(window[pos : match.start()]):
            self._source.take(match.start())
        else:
            self._out(self._source.take(pos + 1))
        self._code.text()

    def _markup_in_code(self, tag: Tag) -> None:
        code, source = self._code, self._source
        if self._held is None and code.state is not Code.SURE:
            self._held = bytearray()
            self._held_opener = None
            code.hold()
        if self._held is not None and self._held_opener is None and code.line_blank:
            if tag.raw == CANONICAL_WRAPPER and self._tools is not None:
                self._held_opener = len(self._held)
        code.text()
        self._out(source.take(source.pos + len(tag.raw)))

    def _release_if_decided(self) -> None:
        if self._held is not None and self._code.state is Code.NONE:
            self._release_held()

    def _release_held(self) -> None:
        held, self._held = self._held, None
        if held:
            self._out(bytes(held))

    def _give_up_span(self) -> bool:
        """An inline span did not close: what was held since is read again as what it is. False if nothing."""
        held, self._held = self._held, None
        self._code.fail()
        if held:
            self._source.push_back(bytes(held))
        return bool(held)

    def _removed(self) -> None:
        """Markup was dropped: text suspended before it now stands before what follows."""
        text = self._suspended.rejoin()
        if text:
            self._source.push_back(text)
            self._opaque = len(text)
            self._opaque_plain = False

    def _out(self, text: bytes) -> None:
        if self._held is not None:
            self._held += text
        else:
            self._output.write(self._suspended.release() + text if self._suspended else text)

    @property
    def _output(self) -> ChannelOutput:
        return self._reasoning if self._mode is _Mode.THINKING else self._content

    def _close_thinking(self) -> bool:
        """`</think>` stands at the window's position."""
        if self._code.state is Code.SPAN and self._give_up_span():
            return False
        self._release_held()
        self._source.take(self._source.pos + len(_THINK_END))
        self._leave_thinking()
        self._code = CodeSpans()
        return True

    def _leave_thinking(self) -> None:
        self._output.write(self._suspended.release())
        self._reasoning.flush()
        self.thinking_closed = True
        self._mode = _Mode.TEXT

    # Text that is certain but for the markup in it

    def _opaque_step(self, final: bool) -> None:
        source = self._source
        while self._opaque and source.pos < len(source.window):
            window, pos = source.window, source.pos
            match = _MARKUP_START.search(window, pos, pos + self._opaque)
            at = match.start() if match else min(len(window), pos + self._opaque)
            if at > pos:
                self._opaque -= at - pos
                self._out(source.take(at))
                continue
            answer = self._opaque_markup(window, pos, final)
            if answer is Need.MORE and not final:
                return
            if isinstance(answer, Tag):
                source.take(pos + len(answer.raw))
                self._opaque = max(0, self._opaque - len(answer.raw))
                text = self._suspended.rejoin()
                source.push_back(text)
                self._opaque += len(text)
                return
            self._opaque_no_markup(window, pos)

    def _opaque_markup(self, window: bytes, pos: int, final: bool) -> Answer:
        answer = stray_markup(window, pos, final=final)
        if answer is None and self._opaque_plain and window[pos] == ord("<"):
            plain = plain_tag(window, pos)
            if plain is Need.MORE or (isinstance(plain, Tag) and plain.kind is not TagKind.FOREIGN):
                return plain
        return answer

    def _opaque_no_markup(self, window: bytes, pos: int) -> None:
        match = _MARKUP_START.search(window, pos + 1)
        end = match.start() if match else pos + 1
        if match and self._suspended.try_add(window[pos:end]):
            self._source.take(end)
        else:
            end = pos + 1
            self._out(self._source.take(end))
        self._opaque = max(0, self._opaque - (end - pos))

    # Blocks

    def _open_block(self, opener: Tag) -> None:
        """A block begins at the window's position."""
        assert self._tools is not None
        held = self._mode is _Mode.THINKING
        self._block_events = []
        emit = self._block_events.append if held else self._events.append
        self._reader = BlockReader(opener, self._tools, self._unescape, self._unique_id, emit)
        if not held:
            self._content.write(self._suspended.release())
            self._lead = self._content.drop_space()
            self._content.flush()
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
        self._reader.step(self._source, final and self._cause == "eos")
        if self._reader.done:
            self._end_tool()

    def _end_tool(self) -> None:
        self._keep_raw(self._lead)
        self._source.stop_record()
        self._source.clear()
        self._mode = _Mode.DONE

    def _keep_raw(self, lead: bytes) -> None:
        reader = self._reader
        if reader and reader.canonical and not reader.repaired and not reader.lost and reader.calls:
            self.raw_block = lead + bytes(self._block)

    def _held_step(self, final: bool) -> None:
        """Read a block in thinking as far as `</think>` does not take it back."""
        source, reader = self._source, self._reader
        assert reader is not None
        seen = self._after if reader.done else self._block
        carried = bytes(seen[-len(_THINK_END) + 1 :])
        found = (carried + source.rest).find(_THINK_END)
        if found >= 0:
            self._take_back(found - len(carried))
            return
        self._read_held(final)

    def _read_held(self, final: bool) -> None:
        source, reader = self._source, self._reader
        assert reader is not None
        if not reader.done:
            reader.step(source, final and self._cause == "eos")
            if reader.done:
                source.stop_record()
                if not reader.complete or self._close_known:
                    self._return_block()
                    return
        if reader.done:
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
            rest = source.take(source.pos + offset + len(_THINK_END))
            if reader.done:
                self._after += rest
            del (self._after if reader.done else self._block)[-len(_THINK_END) :]
            source.stop_record()
            source.push_back(_THINK_END)
        self._close_known = True
        self._return_block()

    def _return_block(self) -> None:
        """A held block was none: it is reasoning, without its tags, and what followed it is read again."""
        assert self._reader is not None
        source, block = self._source, bytes(self._block)
        source.stop_record()
        source.push_back(bytes(self._after))
        source.push_back(block)
        self._opaque = len(block)
        self._opaque_plain = self._reader.plain
        self._reader = None
        self._mode = _Mode.THINKING
        self._code.leave()

    def _deliver_held(self) -> None:
        """Thinking ends at the opener of the held block."""
        self._reasoning.write(self._suspended.release())
        self._lead = self._reasoning.drop_space()
        self._reasoning.flush()
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
        self._code.settle()
        self._release_if_decided()
        if self._code.state is Code.SPAN and self._give_up_span():
            return False
        if self._held and self._held_opener is not None and self._cause == "eos":
            self._open_fenced_block(bytes(self._held), self._held_opener)
            return False
        self._release_held()
        self._output.write(self._suspended.release())
        self._output.flush()
        return True

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

    def _open_fenced_block(self, held: bytes, opener: int) -> None:
        """The fence never closed: it does not protect a canonical block that starts its line."""
        self._held = None
        self._output.write(held[:opener])
        self._source.push_back(held[opener:])
        self._source.load()
        tag = stray_markup(self._source.window, 0)
        assert isinstance(tag, Tag)
        self._code.leave()
        self._open_block(tag)

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
        self._opaque, self._opaque_plain = len(data), False
        self._pump()
        self._content.write(self._suspended.release())
        self._content.flush()
        self._mode = _Mode.DONE
        self.notice = self.content[len(before) :]
