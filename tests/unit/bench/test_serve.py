"""The bench of the server still runs; its figures are for `bench/README.md`."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.serve import report, run
from bench.serve_figures import QUICK
from bench.serve_servers import our_server


def test_a_quick_round(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    server = our_server(tmp_path)
    try:
        figures = run([server], 1, QUICK)
    finally:
        server.stop()
    seen = figures[server.name]
    assert min(seen.first_ms, seen.stream_rate, seen.streams_rate, seen.answers_rate) > 0
    report([server], figures)
    assert "the server adds to the first token, ms" in capsys.readouterr().out
