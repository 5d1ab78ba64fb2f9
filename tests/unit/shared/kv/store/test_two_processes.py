"""One process reads what another one writes, evicts and replaces."""

from __future__ import annotations

from pathlib import Path

from tests.support.two_processes import read_while_another_writes


def test_reading_beside_a_writer(tmp_path: Path) -> None:
    read_while_another_writes(tmp_path, rounds=400)
