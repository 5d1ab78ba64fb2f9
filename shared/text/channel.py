"""Reads the text of one channel, reasoning or content, up to where a block opens or thinking ends.

Owns what is code and therefore shown as it is, what is held while that is undecided, and the removal of stray
markup. Knows nothing of what stands in a block or of the other channel.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import Enum
from typing import Final, Literal

from shared.text import marks
from shared.text.byte_source import ByteSource
from shared.text.channel_output import ChannelOutput
from shared.text.code_spans import Code, CodeSpans
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
from shared.text.stray import Suspended

THINK_END: Final = marks.THINK_END.encode()
_LINE_BREAK: Final = ord("\n")
_LESS: Final = ord("<")
_RUNS: Final = re.compile(rb"`+|~+")
_INTERESTING: Final = re.compile(rb"[<\xef`~\n]")
# What markup can begin with: `<` or the first byte of a bar.
_MARKUP_START: Final = re.compile(rb"[<\xef]")
_MARKUP_BYTES: Final = b"<\xef"


class Found(Enum):
    """THINK_END: `</think>` was read. SETTLED: the channel has ended. AGAIN: bytes have to be read again."""

    THINK_END = "think end"
    SETTLED = "settled"
    AGAIN = "again"


class Channel:
    """One channel. `may_open` says which tool names a plain block may call; None: nothing opens a block."""

    def __init__(
        self, output: ChannelOutput, *, thinking: bool, may_open: Callable[[str], bool] | None
    ) -> None:
        self._output = output
        self._thinking = thinking
        self._may_open = may_open
        self._code = CodeSpans()
        self._held: bytearray | None = None  # output held because it stands in undecided code
        self._held_opener: int | None = None  # in it, the first canonical opener that starts its line
        self._suspended = Suspended()
        self._opaque = 0  # bytes ahead that are text but for the markup in them
        self._opaque_plain = False  # and plain tags of ours are markup too

    def step(self, source: ByteSource, final: bool) -> Tag | Found | None:
        """Read what the window allows. A block's opener is returned unread.

        None: reading paused, for more bytes or because the source has changed.
        """
        if self._opaque:
            self._opaque_step(source, final)
            return None
        return self._text_step(source, final)

    def end(self, source: ByteSource, by_end_token: bool) -> Tag | Found:
        """Nothing follows. The opener of a block that an unclosed fence does not protect is left unread."""
        code = self._code
        code.settle()
        self._release_if_decided()
        if code.state is Code.SPAN and self._give_up_span(source):
            return Found.AGAIN
        if self._held and self._held_opener is not None and by_end_token:
            held, self._held = bytes(self._held), None
            self._output.write(held[: self._held_opener])
            source.push_back(held[self._held_opener :])
            source.load()
            code.leave()
            return Tag(CANONICAL_WRAPPER, TagKind.WRAPPER, mark=marks.DSML.encode())
        self._release_held()
        self.close()
        return Found.SETTLED

    def close(self) -> None:
        """Everything that was read goes out."""
        self._output.write(self._suspended.release())
        self._output.flush()

    def close_before_block(self) -> bytes:
        """The same, but white space at the end is returned instead."""
        self._output.write(self._suspended.release())
        space = self._output.drop_space()
        self._output.flush()
        return space

    def reopen(self, opaque: int, plain_tags: bool) -> None:
        """The next `opaque` bytes are text; markup in them, on request plain tags too, is removed."""
        self._opaque = opaque
        self._opaque_plain = plain_tags
        self._code.leave()

    # Text

    def _text_step(self, source: ByteSource, final: bool) -> Tag | Found | None:
        while source.pos < len(source.window):
            match = _INTERESTING.search(source.window, source.pos)
            at = match.start() if match else len(source.window)
            if at > source.pos:
                self._plain(source.take(at))
            elif source.window[at] in _MARKUP_BYTES:
                found = self._candidate(source, final)
                if found is not True:
                    return found
            elif source.window[at] != _LINE_BREAK:
                self._run(source)
            elif not self._line_break(source):
                return None
        return None

    def _plain(self, text: bytes) -> None:
        """Text without anything special in it."""
        code = self._code
        body = text.lstrip(b" \t") if code.line_blank else text
        if len(body) < len(text):
            code.blanks(len(text) - len(body))
        if body:
            code.text()
        self._release_if_decided()
        self._out(text)

    def _run(self, source: ByteSource) -> None:
        """Backticks or tildes."""
        run = _RUNS.match(source.window, source.pos)
        assert run is not None
        self._code.settle(run[0][0])
        self._release_if_decided()
        self._code.run(run[0][0], len(run[0]))
        self._out(source.take(run.end()))

    def _line_break(self, source: ByteSource) -> bool:
        """False if the line has to be read again before it can end."""
        code = self._code
        code.settle()
        if code.state is Code.SPAN and self._give_up_span(source):
            return False
        code.line_break()
        self._release_if_decided()
        self._out(source.take(source.pos + 1))
        return True

    def _candidate(self, source: ByteSource, final: bool) -> Tag | Found | Literal[True] | None:
        """Decide what stands at a `<` or the beginning of a bar. True: it was read, go on."""
        code = self._code
        code.settle()
        self._release_if_decided()
        answer = self._recognise(source.window, source.pos, final)
        if answer is Need.MORE and not final:
            return None
        if not isinstance(answer, Tag):
            self._no_markup(source)
            return True
        if self._thinking and answer.raw == THINK_END:
            return self._think_end(source)
        if code.state is not Code.NONE:
            self._markup_in_code(source, answer)
            return True
        if self._may_open and not answer.closing and answer.kind is not TagKind.CONTROL:
            return answer
        source.take(source.pos + len(answer.raw))
        return self._removed(source)

    def _recognise(self, window: bytes, pos: int, final: bool) -> Answer:
        stray = stray_markup(window, pos, final=final)
        if isinstance(stray, Tag) or not self._may_open or not self._code.line_blank or window[pos] != _LESS:
            return stray
        return plain_opener(window, pos, self._may_open) or stray

    def _think_end(self, source: ByteSource) -> Found | None:
        if self._code.state is Code.SPAN and self._give_up_span(source):
            return None
        self._release_held()
        source.take(source.pos + len(THINK_END))
        self.close()
        return Found.THINK_END

    def _no_markup(self, source: ByteSource) -> None:
        """The byte here begins nothing: text, unless a removal behind it could make it begin something."""
        window, pos = source.window, source.pos
        match = _MARKUP_START.search(window, pos + 1)
        end = match.start() if match else pos + 1
        in_code = self._code.state is not Code.NONE
        if match and not in_code and self._suspended.try_add(window[pos:end]):
            source.take(end)
        else:
            end = pos + 1
            self._out(source.take(end))
        self._code.text()
        self._opaque = max(0, self._opaque - (end - pos))

    def _markup_in_code(self, source: ByteSource, tag: Tag) -> None:
        code = self._code
        if self._held is None and code.state is not Code.SURE:
            self._held = bytearray()
            self._held_opener = None
            code.hold()
        canonical = tag.raw == CANONICAL_WRAPPER and self._may_open is not None and code.line_blank
        if self._held is not None and self._held_opener is None and canonical:
            self._held_opener = len(self._held)
        code.text()
        self._out(source.take(source.pos + len(tag.raw)))

    def _removed(self, source: ByteSource) -> Literal[True] | None:
        """Markup was dropped: text suspended before it now stands before what follows."""
        text = self._suspended.rejoin()
        if not text:
            return True
        source.push_back(text)
        self._opaque += len(text)
        return None

    # Output

    def _out(self, text: bytes) -> None:
        if self._held is not None:
            self._held += text
        else:
            self._output.write(self._suspended.release() + text if self._suspended else text)

    def _release_if_decided(self) -> None:
        if self._held is not None and self._code.state is Code.NONE:
            self._release_held()

    def _release_held(self) -> None:
        held, self._held = self._held, None
        if held:
            self._out(bytes(held))

    def _give_up_span(self, source: ByteSource) -> bool:
        """An inline span did not close: what was held since is read again as what it is. False if nothing."""
        held, self._held = self._held, None
        self._code.fail()
        if held:
            source.push_back(bytes(held))
        return bool(held)

    # Opaque bytes: no code, and what markup stands in them is removed

    def _opaque_step(self, source: ByteSource, final: bool) -> None:
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
                if not self._removed(source):
                    return
            else:
                self._no_markup(source)
        self._opaque_plain = self._opaque_plain and self._opaque > 0

    def _opaque_markup(self, window: bytes, pos: int, final: bool) -> Answer:
        answer = stray_markup(window, pos, final=final)
        if isinstance(answer, Tag) or not self._opaque_plain or window[pos] != _LESS:
            return answer
        plain = plain_tag(window, pos)
        if isinstance(plain, Tag) and plain.kind is TagKind.FOREIGN:
            return answer
        return plain or answer
