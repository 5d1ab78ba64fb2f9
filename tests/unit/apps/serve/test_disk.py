"""Where the store of a server is, and what happens when it cannot be."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

import apps.serve.disk
from apps.serve.disk import open_store
from apps.serve.log import ServerLog
from apps.serve.settings import DiskSettings
from shared.errors import StoreUnavailable
from shared.kv.files.trailers import encode_title
from shared.kv.store.directory import MARKER
from shared.kv.store.policy import StoreSettings
from shared.model.reference_engine import load
from tests.support.cache_builder import put_cache_file
from tests.support.golden import tiny_q2
from tests.support.scripted import scripted
from tests.support.steering import steering_of


class _Log(ServerLog):
    def __init__(self) -> None:
        self._text = io.StringIO()
        super().__init__(self._text, colour=False)

    @property
    def line_(self) -> str:
        """The only line, without its stamp."""
        (line,) = self._text.getvalue().splitlines()
        return line.partition("ds4-server: ")[2]


def test_without_a_store_the_start_says_so() -> None:
    log = _Log()
    assert open_store(scripted(["a"]), None, log) is None
    assert log.line_.startswith("kv store off: ")


def test_each_model_has_its_own_folder_in_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apps.serve.disk, "store_folder", lambda fingerprint: tmp_path / fingerprint[:16])
    engine, log = scripted(["a"]), _Log()
    store = open_store(engine, DiskSettings(), log)
    assert store is not None
    assert store.directory == tmp_path / engine.fingerprint[:16]
    assert log.line_ == f"kv store {store.directory}: 0 files, 0 MiB of 4096 MiB"
    store.close()


def test_a_named_folder_is_used_as_it_is(tmp_path: Path) -> None:
    log = _Log()
    settings = DiskSettings(tmp_path / "here", StoreSettings(budget_bytes=None))
    store = open_store(scripted(["a"]), settings, log)
    assert store is not None
    assert log.line_ == f"kv store {tmp_path / 'here'}: 0 files, 0 MiB"
    second = _Log()
    other = open_store(scripted(["a"]), settings, second)
    assert other is not None
    assert second.line_.endswith("(read-only: another process writes to it)")
    other.close()
    store.close()


def test_a_folder_that_cannot_be_used_is_an_error_only_if_it_was_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(apps.serve.disk, "store_folder", lambda _: tmp_path / "file" / "kv")
    log = _Log()
    assert open_store(scripted(["a"]), DiskSettings(), log) is None
    assert log.line_.startswith("kv store off: ")
    assert str(tmp_path / "file") in log.line_
    with pytest.raises(StoreUnavailable, match="file"):
        open_store(scripted(["a"]), DiskSettings(tmp_path / "file"), _Log())


@pytest.mark.parametrize(
    "fields",
    [
        {"reason": 6},
        {"reason": 6, "payload": b"", "abi": 0},
        {"extensions": 8, "trailer": encode_title(b"title")},
    ],
)
def test_a_folder_of_conversations_is_no_store(tmp_path: Path, fields: dict[str, Any]) -> None:
    put_cache_file(tmp_path, b"cold", reason=1)
    settings = DiskSettings(tmp_path)
    store = open_store(scripted(["a"]), settings, _Log())
    assert store is not None, "files of another program's store may be there"
    store.close()
    put_cache_file(tmp_path, b"conversation", **fields)
    store = open_store(scripted(["a"]), settings, _Log())
    assert store is not None, "a store stays one"
    store.close()
    (tmp_path / MARKER).unlink()
    with pytest.raises(StoreUnavailable, match="holds conversations of `ds4 chat`: choose another directory"):
        open_store(scripted(["a"]), settings, _Log())
    assert not (tmp_path / MARKER).exists()


def test_each_steering_has_its_own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apps.serve.disk, "store_folder", lambda fingerprint: tmp_path / fingerprint)
    engine, folders = load(tiny_q2()), []
    for scales in ((0, 0), (0, 1), (0, 1.5), (1, 0)):
        engine.steer(steering_of(engine.shape, *scales))
        store = open_store(engine, DiskSettings(), _Log())
        assert store is not None
        folders.append(store.directory)
        store.close()
    assert len(set(folders)) == 4
    assert folders[0] == tmp_path / engine.weights_fingerprint


def test_a_named_folder_serves_one_steering(tmp_path: Path) -> None:
    engine, settings = load(tiny_q2()), DiskSettings(tmp_path)

    def opens(*scales: float) -> bool:
        engine.steer(steering_of(engine.shape, *scales))
        store = open_store(engine, settings, _Log())
        assert store is not None
        store.close()
        return True

    # Without a mark they may be of the C engine, which knows nothing of our steering.
    put_cache_file(tmp_path, b"cold", reason=1)
    with pytest.raises(StoreUnavailable, match="holds saved states that may not be steered"):
        opens(0, 1)
    assert opens(0, 0)
    with pytest.raises(StoreUnavailable, match="holds saved states of another model file"):
        opens(0, 1)
    for path in tmp_path.iterdir():
        path.unlink()
    assert opens(0, 1)
    for other in ((0, 0), (0, -1)):
        with pytest.raises(StoreUnavailable, match=r", steered by [0-9a-f]{8}: ffn 1, attn 0'"):
            opens(*other)
    assert opens(0, 1)
