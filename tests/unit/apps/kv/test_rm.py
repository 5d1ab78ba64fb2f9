"""`ds4 kv rm`: the file and its checksum go, and nothing else ever does."""

import json

import pytest

from apps import cli
from tests.support.cache_builder import put_cache_file
from tests.support.store_lock import held_by


@pytest.fixture
def file(tmp_path):
    path = put_cache_file(tmp_path, b"text")
    path.with_name(path.name + ".sum").touch()
    return path


def _rm(*arguments):
    return cli.main(["kv", "rm", *map(str, arguments)])


def test_a_file_goes_with_its_checksum(tmp_path, file, capsys):
    other = put_cache_file(tmp_path, b"other text")
    assert _rm(file.name[:10], "--dir", tmp_path, "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"removed": [str(file)]}
    assert list(tmp_path.iterdir()) == [other]


def test_named_twice_it_goes_once(tmp_path, file, capsys):
    assert _rm(file, file.name[:6], "--dir", tmp_path) == 0
    assert capsys.readouterr().out == f"removed {file}\n"


def test_damaged_and_set_aside_files_go_too(tmp_path):
    (tmp_path / "bad").mkdir()
    path = put_cache_file(tmp_path / "bad", b"text")
    path.write_bytes(b"")
    assert _rm(path) == 0
    assert not path.exists()


def test_what_is_no_cache_file_stays_and_so_does_everything_else(tmp_path, file, capsys):
    notes = tmp_path / "notes.txt"
    notes.write_text("KV")
    assert _rm(file, notes) == 1
    assert capsys.readouterr().err == f"ds4: {notes} is no cache file: nothing was removed\n"
    assert file.exists()
    assert notes.exists()


def test_not_behind_a_servers_back(tmp_path, file, capsys):
    with held_by(tmp_path, 123):
        assert _rm(file) == 1
        err = capsys.readouterr().err
        assert "is in use by process 123" in err
        assert err.count("\n") == 1
        assert file.exists()
        assert _rm(file, "--force") == 0
    assert not file.exists()


def test_not_what_a_server_set_aside_either(tmp_path, capsys):
    (tmp_path / "bad").mkdir()
    path = put_cache_file(tmp_path / "bad", b"text")
    with held_by(tmp_path):
        assert _rm(path) == 1


def test_wrong_usage(tmp_path, file):
    put_cache_file(tmp_path, b"another")
    assert _rm() == 2
    assert _rm("0", "--dir", tmp_path / "missing") == 2
    assert _rm("f" * 40, "--dir", tmp_path) == 1
