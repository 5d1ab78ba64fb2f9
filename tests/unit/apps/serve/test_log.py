"""The log: exact lines, escapes, colours, and no failure when nobody listens."""

from __future__ import annotations

import io
import time

from apps.serve.log import LogKind, ServerLog, describe

_NOW = time.struct_time((2026, 3, 4, 5, 6, 7, 0, 0, 0))


def _log(colour: bool = False) -> tuple[ServerLog, io.StringIO]:
    stream = io.StringIO()
    return ServerLog(stream, colour=colour, now=lambda: _NOW), stream


def test_a_line() -> None:
    log, stream = _log()
    log.line("listening", LogKind.PREFILL)
    assert stream.getvalue() == "0304 05:06:07 ds4-server: listening\n"


def test_colour_on_a_terminal() -> None:
    log, stream = _log(colour=True)
    log.error("bad")
    log.line("plain")
    assert stream.getvalue() == (
        "\x1b[31m0304 05:06:07 ds4-server: bad\x1b[0m\n0304 05:06:07 ds4-server: plain\n"
    )


def test_what_clients_send_cannot_forge_lines_or_drive_the_terminal() -> None:
    log, stream = _log()
    log.line("name=a\nb\x1b[2Jc é")
    assert stream.getvalue() == "0304 05:06:07 ds4-server: name=a\\nb\\x1b[2Jc é\n"


def test_a_closed_stream_is_ignored() -> None:
    log, stream = _log()
    stream.close()
    log.line("unheard")


def test_an_exception_in_one_line_with_its_place_but_no_path() -> None:
    try:
        raise KeyError("x")
    except KeyError as error:
        text = describe(error)
    assert text.startswith("KeyError: 'x' (test_log.py:")
    assert "/" not in text
