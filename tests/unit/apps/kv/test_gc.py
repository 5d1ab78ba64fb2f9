"""`ds4 kv gc`: what nobody needs goes; what a session may load stays."""

import json
import os
import struct

import pytest

from apps import cli
from apps.kv import command
from shared.kv.files.cache_file import read_cache_file
from shared.kv.files.checksum import Checksum, Sidecar, sidecar_path, write_sidecar
from tests.support.cache_builder import CREATED, put_cache_file
from tests.support.store_lock import held_by

NO_PROCESS = 2**22 + 1  # above what Linux and macOS give out


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    monkeypatch.setattr(command.time, "time", lambda: CREATED + 10.0)


def _gc(capsys, folder, *arguments):
    code = cli.main(["kv", "gc", "--dir", str(folder), "--json", *arguments])
    return code, json.loads(capsys.readouterr().out)


def _names(folder):
    return {path.name for path in folder.iterdir()}


def _megabyte_file(folder, text, **fields):
    return put_cache_file(folder, text, payload=bytes(1 << 20), **fields)


def _write_sum(path, text_bytes=None):
    file = read_cache_file(path)
    sidecar = Sidecar.of(file, Checksum())
    if text_bytes is not None:
        sidecar = Sidecar(sidecar.digest, text_bytes, sidecar.payload_bytes, sidecar.created_at)
    write_sidecar(path, sidecar)


def test_leftovers_of_dead_writers_and_stale_checksums_go(tmp_path, capsys):
    kept, changed = put_cache_file(tmp_path, b"kept"), put_cache_file(tmp_path, b"changed")
    _write_sum(kept)
    _write_sum(changed, text_bytes=1)
    orphan = sidecar_path(tmp_path / ("3" * 40 + ".kv"))
    orphan.write_text("x")
    dead = tmp_path / f"{kept.name}.tmp.{NO_PROCESS}"
    alive = tmp_path / f"{kept.name}.tmp.{os.getppid()}"
    for path in (dead, alive):
        path.write_bytes(b"half")
        os.utime(path, (CREATED, CREATED))
    (tmp_path / "notes.txt").touch()
    before = _names(tmp_path)
    code, found = _gc(capsys, tmp_path, "--dry-run")
    assert (code, found["dry_run"], _names(tmp_path)) == (0, True, before)
    doomed = {dead.name, orphan.name, sidecar_path(changed).name}
    assert {os.path.basename(entry["path"]) for entry in found["files"]} == doomed
    code, again = _gc(capsys, tmp_path)
    assert (code, again["dry_run"], again["files"]) == (0, False, found["files"])
    assert _names(tmp_path) == before - doomed
    assert _gc(capsys, tmp_path)[1] == {"dry_run": False, "bytes": 0, "files": []}


def test_what_was_set_aside_goes(tmp_path, capsys):
    (tmp_path / "bad").mkdir()
    path = put_cache_file(tmp_path / "bad", b"text")
    sidecar_path(path).touch()
    _, found = _gc(capsys, tmp_path)
    assert [entry["why"] for entry in found["files"]] == ["damaged and set aside"] * 2
    assert not list((tmp_path / "bad").iterdir())


def test_over_the_budget_the_least_useful_goes_first(tmp_path, capsys):
    poor = _megabyte_file(tmp_path, b"poor", tokens=600, reason=2)
    rich = _megabyte_file(tmp_path, b"rich", tokens=6000, reason=2)
    _write_sum(poor)
    assert _gc(capsys, tmp_path, "--kv-disk-space-mb", "3")[1]["files"] == []
    _, found = _gc(capsys, tmp_path, "--kv-disk-space-mb", "2")
    assert [(entry["path"], entry["why"]) for entry in found["files"]] == [
        (str(poor), "over the budget of 2.0 MiB")
    ]
    assert _names(tmp_path) == {rich.name}


def test_conversations_are_never_over_the_budget(folders, tmp_path, capsys):
    sessions = folders[1] / "0123456789abcdef"
    sessions.mkdir(parents=True)
    trailer = struct.pack("<I", 1) + b"t"
    for folder in (sessions, tmp_path):
        for text in (b"one", b"two"):
            _megabyte_file(folder, text, reason=6, extensions=8, trailer=trailer)
    assert cli.main(["kv", "gc", "--kv-disk-space-mb", "1"]) == 0
    assert capsys.readouterr().out == "nothing to remove\n"
    assert _gc(capsys, tmp_path, "--kv-disk-space-mb", "1")[1]["files"] == []


def test_not_behind_a_servers_back(tmp_path, capsys):
    (tmp_path / "bad").mkdir()
    path = put_cache_file(tmp_path / "bad", b"text")
    with held_by(tmp_path, 123):
        assert cli.main(["kv", "gc", "--dir", str(tmp_path)]) == 1
        assert "is in use by process 123" in capsys.readouterr().err
        assert path.exists()
        assert cli.main(["kv", "gc", "--dir", str(tmp_path), "--dry-run"]) == 0
        assert path.exists()
        assert cli.main(["kv", "gc", "--dir", str(tmp_path), "--force"]) == 0
        assert not path.exists()


def test_for_people(tmp_path, capsys):
    (tmp_path / "bad").mkdir()
    path = put_cache_file(tmp_path / "bad", b"text", payload=b"", reason=1)
    assert cli.main(["kv", "gc", "--dir", str(tmp_path), "--dry-run"]) == 0
    assert capsys.readouterr().out == (
        f"{path}  56 B: damaged and set aside\n1 file, 56 B would be removed\n"
    )
