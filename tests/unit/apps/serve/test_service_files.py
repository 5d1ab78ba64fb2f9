"""The files of docs/service and the examples of docs/clients.md: whole, and of options that exist."""

from __future__ import annotations

import configparser
import json
import plistlib
import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest

from apps.cli import load_command
from apps.config import read_config
from shared.errors import UsageError

_DOCS = Path(__file__).parents[4] / "docs"
_SERVICE = _DOCS / "service"
_AGENTS = Path(__file__).parents[3] / "clients"


def _options() -> set[str]:
    return {name for parameter in load_command("serve").params for name in parameter.opts}


def test_the_example_configuration_is_accepted_with_all_that_is_commented_out(tmp_path: Path) -> None:
    text = (_SERVICE / "serve.toml").read_text(encoding="utf-8")
    whole = tmp_path / "serve.toml"
    whole.write_text(re.sub(r"^# (?=[a-z-]+ = )", "", text, flags=re.MULTILINE))
    command = load_command("serve")
    assert len(read_config(whole, command)) > len(read_config(_SERVICE / "serve.toml", command)) > 0
    whole.write_text(f"{text}\nno-such-option = 1\n")
    with pytest.raises(UsageError, match="no-such-option"):
        read_config(whole, command)


def test_the_systemd_unit_starts_the_server_and_lets_it_save() -> None:
    unit = configparser.ConfigParser(interpolation=None, strict=True)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string((_SERVICE / "ds4.service").read_text(encoding="utf-8"))
    program, command, *words = shlex.split(unit["Service"]["ExecStart"])
    assert (program, command) == ("%h/.local/bin/ds4", "serve")
    assert {word for word in words if word.startswith("-")} <= _options()
    assert unit["Service"]["KillSignal"] == "SIGTERM"
    assert int(unit["Service"]["TimeoutStopSec"]) > 60


def test_the_launchd_agent_starts_the_server_and_lets_it_save() -> None:
    agent = plistlib.loads((_SERVICE / "ds4.serve.plist").read_bytes())
    shell, flag, line = agent["ProgramArguments"]
    assert (shell, flag) == ("/bin/sh", "-c")
    words = shlex.split(line.partition("exec ")[2])
    assert words[:2] == ["$HOME/.local/bin/ds4", "serve"]
    assert {word for word in words if word.startswith("-")} <= _options()
    assert agent["ExitTimeOut"] > 60
    assert agent["Umask"] == 0o077


@pytest.mark.parametrize("page", ["clients.md", "service/README.md", "api.md"])
def test_pages_name_options_and_files_that_exist(page: str) -> None:
    text = (_DOCS / page).read_text(encoding="utf-8")
    ours = re.findall(r"`ds4 serve ([^`]*)`", text)
    named = {word for line in ours for word in re.findall(r"--[a-z-]+", line)}
    assert named <= _options()
    for target in re.findall(r"\]\(([^)#:]+)", text):
        assert (_DOCS / page).parent.joinpath(target).exists(), target


def _block(heading: str, language: str) -> str:
    text = (_DOCS / "clients.md").read_text(encoding="utf-8")
    section = text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return section.partition(f"```{language}\n")[2].partition("```")[0]


def _agent_file(path: str) -> str:
    text = (_AGENTS / path).read_text(encoding="utf-8")
    return text.replace("$URL", "http://127.0.0.1:8000")


def _contains(whole: Any, part: Any, where: str = "") -> None:
    """Every setting of `part` is in `whole`; figures may differ."""
    if isinstance(part, dict):
        for key, value in part.items():
            assert key in whole, f"{where}.{key}"
            _contains(whole[key], value, f"{where}.{key}")
    elif isinstance(part, list):
        for inner, value in zip(whole, part, strict=True):
            _contains(inner, value, where)
    elif not isinstance(part, int):
        assert whole == part, where


def test_the_set_ups_of_agents_are_those_that_are_tried() -> None:
    _contains(
        tomllib.loads(_block("Codex", "toml")), tomllib.loads(_agent_file("codex/home/.codex/config.toml"))
    )
    _contains(json.loads(_block("Pi", "json")), json.loads(_agent_file("pi/home/.pi/agent/models.json")))
    tried = json.loads(_agent_file("opencode/home/.config/opencode/opencode.json"))
    # What keeps a test from the network is no set-up for people.
    del tried["autoupdate"], tried["share"]
    _contains(json.loads(_block("opencode", "json")), tried)
