"""Options from a file: below flags and variables, checked as if they had been typed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from apps.cli import load_command, run
from apps.config import read_config
from shared.errors import UsageError


class _Started(Exception):
    """What the server was started with."""

    def __init__(self, *given: Any) -> None:
        self.engine, self.settings, self.host, self.port = given


@pytest.fixture(autouse=True)
def _start_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(*given: Any, **_: Any) -> None:
        raise _Started(*given)

    monkeypatch.setattr("apps.serve.start.serve_until_stopped", start)


def _started(*words: str) -> _Started:
    with pytest.raises(_Started) as caught:
        run("serve", words)
    return caught.value


def _file(tmp_path: Path, text: str) -> str:
    path = tmp_path / "ds4.toml"
    path.write_text(text)
    return str(path)


def test_a_file_sets_options_of_every_kind(tmp_path: Path) -> None:
    text = """
        host = "::1"
        port = 1234
        ctx = 65_536
        nothink = true
        quality = false
        backend = "scripted"
        api-key = ["one", "two"]
        cors_origin = "https://a.example"
        kv-disk-dir = "here"
    """
    started = _started("--config", _file(tmp_path, text))
    assert (started.host, started.port) == ("::1", 1234)
    assert (started.engine.context, started.engine.backend, started.engine.quality) == (
        65536,
        "scripted",
        False,
    )
    assert not started.settings.thinking
    assert started.settings.access.keys == {b"one", b"two"}
    assert started.settings.access.origins == {"https://a.example"}
    assert started.settings.disk.directory == Path("here")


def test_a_flag_wins_over_a_variable_and_a_variable_over_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = _file(tmp_path, "port = 1\nctx = 100\nsessions = 3\napi-key = 'file'")
    monkeypatch.setenv("DS4_PORT", "2")
    monkeypatch.setenv("DS4_CTX", "200")
    monkeypatch.setenv("DS4_API_KEY", "variable")
    started = _started("--port", "5", "--config", path)
    assert (started.port, started.engine.context, started.engine.sessions) == (5, 200, 3)
    assert started.settings.access.keys == {b"variable"}
    assert _started("--config", path, "--api-key", "flag").settings.access.keys == {b"flag"}


@pytest.mark.parametrize(
    ("file", "words", "effort"),
    [
        ("nothink = true", "", "none"),
        ("nothink = true", "--think", "high"),
        ("nothink = true", "--effort max", "max"),
        ("think-max = true", "--nothink", "none"),
        ("think-max = true", "--effort low", "low"),
        ("effort = 'low'", "--think-max", "max"),
        ("think = true", "--nothink", "none"),
    ],
)
def test_a_switch_of_thinking_on_the_command_line_wins_over_a_contrary_one_in_the_file(
    tmp_path: Path, file: str, words: str, effort: str
) -> None:
    settings = _started("--config", _file(tmp_path, file), *words.split()).settings
    assert (settings.effort if settings.thinking else "none") == effort


def test_a_switch_of_thinking_has_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DS4_NOTHINK", "1")
    assert not _started().settings.thinking
    assert _started("--think").settings.thinking
    with pytest.raises(UsageError, match="contradicts"):
        run("serve", ["--think", "--nothink"])


def test_every_option_of_the_server_has_a_variable() -> None:
    for parameter in load_command("serve").params:
        assert parameter.envvar, parameter.opts


def test_a_variable_names_the_file_and_the_rest_has_its_defaults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DS4_CONFIG", _file(tmp_path, "port = 77"))
    started = _started()
    assert (started.port, started.host, started.engine.context) == (77, "127.0.0.1", 32768)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("prot = 1\nfoo = 2", r"unknown keys 'prot' \(did you mean 'port'\?\), 'foo'"),
        ("[serve]\nport = 1", "unknown key 'serve'"),
        ("config = 'other.toml'", "unknown key 'config'"),
        ("m = 'x.gguf'", "unknown key 'm'"),
        ("port = ", "not a TOML file"),
        ("port = 1\nport = 2", "not a TOML file"),
        ("x = " + "[" * 100_000, "not a TOML file"),
        ("\udcff", "not a TOML file"),
        ("port = true", r"port in .*: give a text or a number"),
        ("port = [1]", r"port in .*: give a text or a number"),
        ("port = 2026-01-01", r"port in .*: give a text or a number"),
        ("cors = 'yes'", r"cors in .*: give true or false"),
        ("api-key = [1, [2]]", r"api-key in .*: give a text or a number"),
        ("port = 70000", r"port in .*ds4.toml should be less than or equal to 65535"),
        ("port = 1.5", r"port in .*ds4.toml should be a valid integer"),
        ("backend = 'gpu'", r"backend in .*ds4.toml: 'gpu' is not one of"),
    ],
)
def test_what_is_wrong_in_it_is_one_line(tmp_path: Path, text: str, wanted: str) -> None:
    path = tmp_path / "ds4.toml"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(UsageError, match=wanted) as caught:
        run("serve", ["--config", str(path)])
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none"):
        with pytest.raises(UsageError, match=f"--config {path}: (Is a directory|No such file)"):
            run("serve", ["--config", str(path)])
    huge = tmp_path / "huge"
    huge.write_bytes(b"#" * (1 << 20) + b"\n")
    with pytest.raises(UsageError, match="larger than 1 MiB"):
        run("serve", ["--config", str(huge)])


def test_every_option_has_a_key(tmp_path: Path) -> None:
    command = load_command("serve")
    for parameter in command.params:
        name = next(opt for opt in parameter.opts if opt.startswith("--")).lstrip("-")
        if name == "config":
            continue
        value = "true" if parameter.is_flag else "'1'"
        assert read_config(Path(_file(tmp_path, f"{name} = {value}")), command).keys() == {parameter.name}
