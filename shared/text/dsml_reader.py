"""Reads one tool-call block: wrapper, invokes and parameters, in any cuts and in most misspellings.

Owns the grammar between the tags and what makes a call lost; where a value ends is the value reader's. Starts
at the block's opening tag. Knows nothing of thinking, code or the text around the block.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from shared.text.byte_source import ByteSource
from shared.text.dsml_call import CallWriter, Emit
from shared.text.dsml_tags import CANONICAL_WRAPPER, Need, Tag, TagKind, block_tag
from shared.text.dsml_values import DecodeState, JsonBody, StringBody, Unescape, ValueReader
from shared.text.messages import ToolCall, ToolSet

_MARK: Final = re.escape("｜DSML｜".encode())
_CANONICAL_OPENER: Final = re.compile(
    rb"<%(m)sinvoke name=\"[^\"<>]+\">|<%(m)sparameter name=\"[^\"<>]+\" string=\"(true|false)\">"
    % {b"m": _MARK}
)
_SPACE_RUN: Final = re.compile(rb"[ \t\r\n]*")
# A parameter's opener that became part of a value, because the closer before it is missing.
_SWALLOWED: Final = re.compile(r"<[｜|]{0,2} ?DSML ?[｜|]{0,2} ?parameter\b")


class BlockReader:
    """Reads from `source` with `step`; ends with `done`, at the block's end, or by `finish`."""

    def __init__(
        self, opener: Tag, tools: ToolSet, unescape: Unescape, new_id: Callable[[], str], emit: Emit
    ) -> None:
        self.done = False
        self.plain = not opener.marked
        self.calls: list[ToolCall] = []
        self.lost: list[str] = []  # what a reader should see of each lost call
        self.loose = bytearray()  # text between the invokes
        self.repaired = False
        self.cut = False  # the turn ended inside a call, by anything but the end token
        self.open_at_end = False  # the turn ended before the last invoke was closed
        self._tools = tools
        self._unescape = unescape
        self._new_id = new_id
        self._emit = emit
        self._started = 0
        self._canonical = True
        self._wrapper: Tag | None = None
        self._call: CallWriter | None = None
        self._invoke: Tag | None = None
        self._objects: list[Tag] = []  # parameters that hold parameters
        self._delayed: Tag | None = None  # a parameter without `string`: a value or nested parameters follow
        self._delayed_space = bytearray()
        self._parameter: Tag | None = None
        self._value: ValueReader | None = None
        self._foreign: bytes | None = None
        self._opened = False

    @property
    def state(self) -> DecodeState:
        if self.done:
            return DecodeState.OUTSIDE
        if self._value:
            return self._value.state
        return DecodeState.STRING_BODY if self._delayed else DecodeState.STRUCTURAL

    @property
    def canonical(self) -> bool:
        """Every tag is in the one spelling that is also written, and nothing was repaired."""
        return self._canonical and self._wrapper is not None

    @property
    def complete(self) -> bool:
        """Nothing is open or lost and at least one call is whole."""
        whole = bool(self.calls) and not self.lost and not self._call and not self.open_at_end
        return whole and (self.done or self._wrapper is None)

    def step(self, source: ByteSource, final: bool) -> bool:
        """Read what the window allows; `final`: the end token follows it. True: the block is done."""
        while not self.done:
            if self._value:
                if not self._value.step(source, final):
                    break
                self._end_value(self._value.closer)
            elif not self._between(source, final):
                break
        return self.done

    def finish(self, source: ByteSource, ended: bool) -> None:
        """The turn ends, by the end token (`ended`) or by anything else."""
        if self._call and not ended:
            self._call.lose()
        if self._delayed:
            self._begin_value(self._delayed)
        if self._value:
            self._value.close(source)
            self._end_value(None)
        rest = source.take(len(source.window))
        if self._call:
            self.open_at_end = True
            self.cut = not ended
            self._end_call(None)
        elif not ended and not self.done and rest.startswith(b"<") and b"/" not in rest:
            self.cut = self.open_at_end = True
            self.lost.append("")
        if not self.done:
            self._repair()
            self.done = True

    def _between(self, source: ByteSource, final: bool) -> bool:
        """Read white space and one tag or piece of text; False when more bytes are needed."""
        match = _SPACE_RUN.match(source.window, source.pos)
        start = match.end() if match else source.pos
        if self._delayed:
            return self._after_delayed(source, start, final)
        self._space(source.take(start))
        window = source.window
        if start == len(window):
            return False
        if window[start] != ord("<"):
            less = window.find(b"<", start)
            self._text(source, less if less >= 0 else len(window))
            return True
        tag = block_tag(window, start, final=final)
        if tag is Need.MORE and not final:
            return False
        if isinstance(tag, Tag):
            self._tag(source, tag)
        elif tag is Need.MORE:
            self._unfinished(source.take(len(window)))
        else:
            self._text(source, start + 1)
        return True

    def _after_delayed(self, source: ByteSource, start: int, final: bool) -> bool:
        """Decide what a parameter without `string` holds; white space before text belongs to the value."""
        tag, window = self._delayed, source.window
        assert tag is not None
        following: Tag | Need | None = None
        if start == len(window):
            following = Need.MORE
        elif window[start] == ord("<"):
            following = block_tag(window, start, final=final)
        if following is Need.MORE and not final:
            return self._skip_delayed_space(source, start)
        nested = isinstance(following, Tag) and following.kind is TagKind.PARAMETER and not following.closing
        if nested and isinstance(following, Tag) and (following.marked or not tag.marked):
            source.take(start)
            self._delayed = None
            self._delayed_space.clear()
            self._objects.append(tag)
            if self._call:
                self._call.open_object(tag.name or "")
        else:
            self._begin_value(tag)
        return True

    def _space(self, data: bytes) -> None:
        if self._foreign is not None:
            return
        if self._call:
            self._call.space(data)
        elif self.loose:
            self.loose += data

    def _text(self, source: ByteSource, end: int) -> None:
        if self._wrapper is None and not self._call:
            self.done = True
            return
        data = source.take(end)
        self._repair()
        if self._foreign is not None:
            return
        if self._call:
            self._call.unreadable(data)
        else:
            self.loose += data

    def _unfinished(self, data: bytes) -> None:
        """The end token came within a tag, too early to tell which."""
        self._repair()
        if self._call and b"/" not in data:
            self._call.unreadable(b"")

    def _tag(self, source: ByteSource, tag: Tag) -> None:
        if self._opened and self._wrapper is None and not self._call and not _continues(tag):
            self.done = True
            return
        source.take(source.pos + len(tag.raw))
        first, self._opened = not self._opened, True
        if tag.kind in (TagKind.FOREIGN, TagKind.CONTROL) or (
            tag.kind is TagKind.WRAPPER and not tag.closing and not first
        ):
            self._skip(tag)
            return
        foreign, self._foreign = self._foreign, None
        if tag.closing and tag.kind is TagKind.WRAPPER and tag.word == foreign:
            return
        if tag.closing:
            self._close(tag)
        elif tag.kind is TagKind.WRAPPER:
            self._wrapper = tag
            self._canonical = self._canonical and tag.raw == CANONICAL_WRAPPER
        elif tag.kind is TagKind.INVOKE:
            self._open_call(tag)
        else:
            self._open_parameter(tag)

    def _skip(self, tag: Tag) -> None:
        """A tag of another dialect: skipped with its content, unless it seems to carry an argument."""
        self._repair()
        if tag.closing:
            if self._foreign == tag.word:
                self._foreign = None
            return
        if tag.kind is TagKind.CONTROL:
            return
        if not tag.raw.endswith(b"/>"):
            self._foreign = tag.word
        properties = self._call.properties if self._call else None
        if self._call and (tag.name is not None or tag.word.decode() in (properties or ())):
            self._call.unreadable(b"")

    def _close(self, tag: Tag) -> None:
        if not self._call and tag.kind is not TagKind.WRAPPER:
            self._lose_loose()
        if tag.kind is TagKind.PARAMETER:
            if self._objects:
                self._close_object(tag)
            else:
                self._repair()
            return
        if self._call:
            self._end_call(tag)
        elif tag.kind is TagKind.INVOKE:
            self._repair()
        if tag.kind is TagKind.WRAPPER:
            if self._wrapper is None or tag.raw != self._wrapper.closer:
                self._repair()
            self.done = True

    def _lose_loose(self) -> None:
        """A tag of a call whose opener is missing: text before it is a value that lost its own tags."""
        if self.loose.strip():
            self.lost.append(self.loose.decode("utf-8", "replace").strip())
            self.loose.clear()

    def _open_call(self, tag: Tag | None) -> None:
        """An invoke begins; None stands for one whose opening tag is missing."""
        if self._call:
            self._repair()
            self._end_call(None)
        name = tag.name if tag else None
        known = name is not None and name in self._tools
        self._canonical = self._canonical and tag is not None and _is_canonical(tag)
        self._call = CallWriter(
            self._started,
            self._new_id() if name is not None else "",
            name,
            self._tools.properties(name) if known and name else None,
            self._tools.required(name) if known and name else frozenset(),
            self._emit,
        )
        self._started += name is not None
        self._invoke = tag

    def _end_call(self, closer: Tag | None) -> None:
        """The open invoke ends, by `closer` or by something else."""
        call = self._call
        assert call is not None
        while self._objects:
            self._close_object(None)
        if closer is None or self._invoke is None or closer.raw != self._invoke.closer:
            self._repair()
        if _SWALLOWED.search(call.text):
            call.repaired = True
        finished = call.end()
        self._canonical = self._canonical and not call.unwrapped
        if finished:
            self.calls.append(finished)
        else:
            self.lost.append(call.text)
        self._call = self._invoke = None

    def _open_parameter(self, tag: Tag) -> None:
        if not self._call:
            self._repair()
            self._lose_loose()
            self._open_call(None)
        assert self._call is not None
        if tag.name is None:
            self._call.unreadable(b"")
        self._canonical = self._canonical and _is_canonical(tag)
        if tag.is_string is None:
            self._delayed = tag
            self._delayed_space = bytearray()
        else:
            self._begin_value(tag)

    def _begin_value(self, tag: Tag) -> None:
        call = self._call
        assert call is not None
        name = tag.name or ""
        body: StringBody | JsonBody
        if tag.is_string is False:
            call.open_json(name)
            body = JsonBody(call)
        else:
            call.open_string(name)
            body = StringBody(call, tag, self._unescape)
        if self._delayed:
            body.write(bytes(self._delayed_space))
            self._delayed = None
        self._value = ValueReader(tag, body)
        self._parameter = tag

    def _skip_delayed_space(self, source: ByteSource, start: int) -> bool:
        self._delayed_space += source.take(start)
        return False

    def _end_value(self, closer: Tag | None) -> None:
        self._value = None
        if closer is None or self._parameter is None or closer.raw != self._parameter.closer:
            self._repair()

    def _close_object(self, closer: Tag | None) -> None:
        opener = self._objects.pop()
        if self._call:
            self._call.close_object()
        if closer is not None and closer.raw != opener.closer:
            self._repair()

    def _repair(self) -> None:
        self.repaired = True
        self._canonical = False
        if self._call:
            self._call.repaired = True


def _continues(tag: Tag) -> bool:
    """Whether a block without wrapper goes on with `tag` after an invoke; a parameter there lost its own."""
    return tag.kind in (TagKind.INVOKE, TagKind.PARAMETER) or (tag.closing and tag.kind is TagKind.WRAPPER)


def _is_canonical(tag: Tag) -> bool:
    return _CANONICAL_OPENER.fullmatch(tag.raw) is not None
