"""Scripted engines for tests of programs: turns as plain Python values."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from shared.scripted.engine import ScriptedEngine
from shared.scripted.pauses import Pauses
from shared.scripted.script_file import parse_script


def turn(*pieces: Any, **fields: Any) -> dict[str, Any]:
    """One turn that emits `pieces`."""
    return {"pieces": list(pieces), **fields}


def scripted(*turns: dict[str, Any], pauses: Pauses | None = None, **fields: Any) -> ScriptedEngine:
    """An engine that plays `turns`."""
    return ScriptedEngine(parse_script(json.dumps({"turns": turns, **fields})), pauses=pauses)


def script_file(folder: Path, *turns: dict[str, Any], **fields: Any) -> Path:
    """A script file that plays `turns`."""
    path = folder / "script.json"
    path.write_text(json.dumps({"turns": turns, **fields}), encoding="utf-8")
    return path
