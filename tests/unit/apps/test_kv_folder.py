"""Default folders: one for each model, where the system keeps such things."""

from __future__ import annotations

from pathlib import Path

import platformdirs
import pytest

from apps.kv_folder import agent_folder, named_folder, sessions_folder, store_folder
from shared.errors import UsageError

ONE, OTHER = "0123456789abcdef" * 4, "0123456789abcdee" * 4


def test_each_model_has_folders_of_its_own() -> None:
    folders = {folder(model) for folder in (store_folder, sessions_folder) for model in (ONE, OTHER)}
    assert len(folders) == 4
    assert all(folder.name in ("0123456789abcdef", "0123456789abcdee") for folder in folders)


def test_what_may_be_lost_is_cache_and_what_may_not_is_data(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(platformdirs, "user_cache_path", lambda name: tmp_path / "cache" / name)
    monkeypatch.setattr(platformdirs, "user_data_path", lambda name: tmp_path / "data" / name)
    assert store_folder(ONE) == tmp_path / "cache" / "ds4" / "kv" / ONE[:16]
    assert sessions_folder(ONE) == tmp_path / "data" / "ds4" / "sessions" / ONE[:16]
    assert not list(tmp_path.iterdir())


def test_the_agents_folder_is_in_the_home_if_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/somewhere")
    assert agent_folder() == Path("/somewhere/.ds4/kvcache")

    def homeless() -> Path:
        raise RuntimeError

    monkeypatch.setattr(Path, "home", homeless)
    assert agent_folder() == Path(".ds4/kvcache")


def test_a_tilde_that_no_shell_has_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/somewhere")
    assert named_folder(Path("~/kv")) == Path("/somewhere/kv")
    assert named_folder(Path("kv~")) == Path("kv~")
    with pytest.raises(UsageError, match="name the folder without ~"):
        named_folder(Path("~nobody-of-this-name/kv"))
