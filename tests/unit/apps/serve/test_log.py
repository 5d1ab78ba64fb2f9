"""The log: exact lines, escapes, colours, and no failure when nobody listens."""

from __future__ import annotations

import io
import json
import time

from apps.serve.log import LogKind, ServerLog, describe

_NOW = time.mktime((2026, 3, 4, 5, 6, 7, 0, 0, -1))
_UTC = 1772600767.25  # 2026-03-04, 05:06:07 and a quarter


def _log(colour: bool = False) -> tuple[ServerLog, io.StringIO]:
    stream = io.StringIO()
    return ServerLog(stream, colour=colour, now=lambda: _NOW), stream


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


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


def test_json_holds_the_text_and_the_facts() -> None:
    stream = io.StringIO()
    log = ServerLog(stream, form="json", now=lambda: _UTC)
    log.line("gen=3 é\n\x1b\ud800", LogKind.GENERATION, generated=3, finish="stop", rate=1.5, session=None)
    log.warning("careful", status=400)
    log.error("bad")
    log.line("plain")
    lines = stream.getvalue().splitlines()
    assert stream.getvalue().isascii()
    assert [json.loads(line) for line in lines] == [
        {
            "time": "2026-03-04T05:06:07.250+00:00",
            "level": "info",
            "kind": "generation",
            "text": "gen=3 é\n\x1b\ud800",
            "generated": 3,
            "finish": "stop",
            "rate": 1.5,
            "session": None,
        },
        {
            "time": "2026-03-04T05:06:07.250+00:00",
            "level": "warning",
            "kind": "server",
            "text": "careful",
            "status": 400,
        },
        {"time": "2026-03-04T05:06:07.250+00:00", "level": "error", "kind": "server", "text": "bad"},
        {"time": "2026-03-04T05:06:07.250+00:00", "level": "info", "kind": "server", "text": "plain"},
    ]


def test_facts_are_for_json_only() -> None:
    log, stream = _log()
    log.line("said", LogKind.PLAIN, generated=3)
    assert stream.getvalue() == "0304 05:06:07 ds4-server: said\n"


def test_json_by_itself_where_no_terminal_is() -> None:
    for stream, form, is_json in (
        (io.StringIO(), "auto", True),
        (_Terminal(), "auto", False),
        (_Terminal(), "json", True),
        (io.StringIO(), "text", False),
    ):
        ServerLog(stream, form=form).line("x")
        assert stream.getvalue().startswith("{") == is_json, form


def test_an_exception_in_one_line_with_its_place_but_no_path() -> None:
    try:
        raise KeyError("x")
    except KeyError as error:
        text = describe(error)
    assert text.startswith("KeyError: 'x' (test_log.py:")
    assert "/" not in text
