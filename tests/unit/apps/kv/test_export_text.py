"""`ds4 kv export-text`: the bytes of the text, unchanged."""

import base64
import json
import stat

import pytest

from apps import cli
from tests.support.cache_builder import put_cache_file

TEXT = "<｜User｜>hello\r\n世".encode() + b"\0\xff"


@pytest.fixture
def file(tmp_path):
    return put_cache_file(tmp_path, TEXT, abi=0)


def test_to_stdout(file, capfdbinary):
    assert cli.main(["kv", "export-text", str(file)]) == 0
    assert capfdbinary.readouterr().out == TEXT


def test_to_a_file_that_others_cannot_read(file, tmp_path):
    output = tmp_path / "text"
    assert cli.main(["kv", "export-text", file.name[:8], "--dir", str(tmp_path), "-o", str(output)]) == 0
    assert output.read_bytes() == TEXT
    assert stat.S_IMODE(output.stat().st_mode) == 0o600
    assert cli.main(["kv", "export-text", str(file), "-o", str(tmp_path / "no" / "text")]) == 2


def test_as_json(file, tmp_path, capfd):
    assert cli.main(["kv", "export-text", str(file), "--json"]) == 0
    found = json.loads(capfd.readouterr().out)
    assert (found["text_bytes"], base64.b64decode(found["text_base64"])) == (len(TEXT), TEXT)
    plain = put_cache_file(tmp_path, "世".encode())
    assert cli.main(["kv", "export-text", str(plain), "--json"]) == 0
    assert json.loads(capfd.readouterr().out) == {"path": str(plain), "text_bytes": 3, "text": "世"}


def test_a_cut_off_file(file, capsys):
    file.write_bytes(file.read_bytes()[:60])
    assert cli.main(["kv", "export-text", str(file)]) == 1
    assert "is cut off" in capsys.readouterr().err
