"""The live state from opening to closing: what is saved, and that trouble at the end stays a log line."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

import apps.serve.live
from apps.serve.live import live_state
from apps.serve.log import ServerLog
from apps.serve.settings import DiskSettings, ServerSettings
from shared.kv.live.slots import Slots
from shared.kv.live.tool_memory import ToolMemory
from shared.kv.store.policy import StoreSettings
from tests.support.scripted import scripted

_PROMPT = list(b"a prompt that is long enough to be kept")


def _settings(folder: Path, sessions: int = 1) -> ServerSettings:
    store = StoreSettings(min_tokens=8, durable=False)
    return ServerSettings(sessions=sessions, disk=DiskSettings(folder, store))


def test_every_session_is_saved_at_the_end(tmp_path: Path) -> None:
    engine, log = scripted(["a"]), ServerLog(io.StringIO())
    with live_state(engine, 100, _settings(tmp_path, 3), ToolMemory(1), log) as live:
        assert [slot.session.context for slot in live.slots.slots] == [100] * 3
        for number, slot in enumerate(live.slots.slots[:2]):
            slot.session.sync([*_PROMPT, number])
    assert len(list(tmp_path.glob("*.kv"))) == 2
    assert [entry.call for entry in engine.journal.entries].count("close") == 3


def test_what_cannot_be_saved_is_one_line_and_the_rest_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: Slots) -> None:
        raise RuntimeError("device lost")

    monkeypatch.setattr(Slots, "shut_down", fail)
    engine, text = scripted(["a"]), io.StringIO()
    with live_state(engine, 100, _settings(tmp_path), ToolMemory(1), ServerLog(text)) as live:
        assert live.store is not None
    assert text.getvalue().count("what was live could not be saved: RuntimeError: device lost") == 1
    assert engine.journal.entries[-1].call == "close"
    # The folder is free again.
    monkeypatch.undo()
    with live_state(scripted(["a"]), 100, _settings(tmp_path), ToolMemory(1), ServerLog(text)) as live:
        assert live.store is not None
        assert not live.store.read_only


def test_after_a_fault_of_ours_nothing_is_saved(tmp_path: Path) -> None:
    state = live_state(scripted(["a"]), 100, _settings(tmp_path), ToolMemory(1), ServerLog(io.StringIO()))

    def work() -> None:
        with state as live:
            live.slots.slots[0].session.sync(_PROMPT)
            raise RuntimeError("oops")

    with pytest.raises(RuntimeError, match="oops"):
        work()
    assert not list(tmp_path.glob("*.kv"))


@pytest.mark.parametrize(("mebibytes", "said"), [(0, False), (1, True), (2, True), (3, False)], ids=str)
def test_too_little_memory_for_any_point_to_go_back_to_is_said(
    monkeypatch: pytest.MonkeyPatch, mebibytes: int, said: bool
) -> None:
    monkeypatch.setattr(apps.serve.live, "mark_size", lambda shape, context: 5 * 2**19)
    text = io.StringIO()
    settings = ServerSettings(checkpoint_bytes=mebibytes * 2**20)
    with live_state(scripted(["a"]), 100, settings, ToolMemory(1), ServerLog(text)):
        pass
    line = f"--kv-checkpoint-mb {mebibytes} has room for no point to go back to: one takes 2.5 MiB"
    assert (line in text.getvalue()) is said
