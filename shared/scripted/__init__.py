"""An engine without weights that plays a script: for tests, for clients' integrators, for demonstrations."""

from shared.scripted.engine import ScriptedEngine, load

__all__ = ["ScriptedEngine", "load"]
