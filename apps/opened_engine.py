"""An engine for the time of a command, with what it has to say told first."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

from apps.backend import open_engine
from apps.console import say
from apps.options import EngineOptions
from apps.startup import engine_notes
from shared.session import Engine


@contextmanager
def opened_engine(engine_options: EngineOptions) -> Iterator[Engine]:
    """Opens the engine and tells its notes on stderr; closes it however the command ends. Raises like
    `open_engine`."""
    with closing(open_engine(engine_options)) as engine:
        for note in engine_notes(engine):
            say(note, "ds4.warning")
        yield engine
