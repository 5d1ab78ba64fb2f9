"""Programs read their settings from the environment: tests start from a clean one."""

import os
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [*os.environ]:
        if name.startswith("DS4_"):
            monkeypatch.delenv(name)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("DS4_HISTORY", str(tmp_path / "history"))
    monkeypatch.setenv("DS4_LOCK_FILE", str(tmp_path / "lock"))
    # Saved conversations and prompt states lie in the user's folders.
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("XDG_DATA_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
