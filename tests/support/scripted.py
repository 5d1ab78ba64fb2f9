"""Scripted engines that never really wait."""

from __future__ import annotations

import json
from typing import Any

from shared.scripted import ScriptedEngine
from shared.scripted.pauses import Pauses
from shared.scripted.script_file import parse_script
from tests.support.clock import FakeClock


def scripted(
    *turns: list[Any] | dict[str, Any], clock: FakeClock | None = None, **script: Any
) -> ScriptedEngine:
    """An engine that plays `turns`, each a list of pieces or a whole turn; `script` is the script's rest."""
    document = {"turns": [{"pieces": turn} if isinstance(turn, list) else turn for turn in turns], **script}
    clock = clock or FakeClock()
    return ScriptedEngine(
        parse_script(json.dumps(document)), pauses=Pauses(clock.sleep, clock.sleep), clock=clock
    )
