"""One process reads for long what another one writes, evicts and replaces."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.two_processes import read_while_another_writes


@pytest.mark.long
def test_reading_beside_a_writer_for_long(tmp_path: Path) -> None:
    read_while_another_writes(tmp_path, rounds=8000)
