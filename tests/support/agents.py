"""Real agents, installed from the npm registry, and a `ds4 serve` for them to talk to.

What is particular to one agent is its folder below `tests/clients` (its settings and what the model says) and
its line in `AGENTS`.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.api_server import wait_for

_ROOT = Path(__file__).parents[2]
_CLIENTS = _ROOT / "tests" / "clients"
_INSTALLED = _ROOT / ".clients"
# Minutes for what takes seconds: a busy machine must not fail the test.
_INSTALL_SECONDS = 900
_RUN_SECONDS = 240


@dataclass(frozen=True)
class Agent:
    """One agent: `first` begins a conversation, `more` goes on with it; a prompt follows either."""

    name: str
    first: tuple[str, ...]
    more: tuple[str, ...]
    environment: tuple[tuple[str, str], ...] = ()

    @property
    def folder(self) -> Path:
        """Its settings below `home`, and what the model says to it."""
        return _CLIENTS / self.name


_FREELY = "--dangerously-bypass-approvals-and-sandbox"
_OPENCODE = ("-m", "ds4/deepseek-v4-flash")
_PI = ("--provider", "ds4", "--model", "deepseek-v4-flash", "-p")
AGENTS = (
    Agent(
        "claude-code",
        ("claude", "--dangerously-skip-permissions", "-p"),
        ("claude", "--dangerously-skip-permissions", "-c", "-p"),
        (
            ("ANTHROPIC_BASE_URL", "$URL"),
            ("ANTHROPIC_AUTH_TOKEN", "unused"),
            ("ANTHROPIC_MODEL", "deepseek-v4-flash"),
            ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"),
            # It refuses to skip permissions for root unless it is told that this does no harm.
            ("IS_SANDBOX", "1"),
        ),
    ),
    Agent(
        "codex",
        ("codex", "exec", "--skip-git-repo-check", _FREELY),
        ("codex", "exec", "resume", "--last", "--skip-git-repo-check", _FREELY),
    ),
    Agent("opencode", ("opencode", "run", *_OPENCODE), ("opencode", "run", "-c", *_OPENCODE)),
    Agent("pi", ("pi", *_PI), ("pi", "-c", *_PI), (("PI_OFFLINE", "1"), ("PI_TELEMETRY", "0"))),
)


def install() -> str | None:
    """Install the agents in the versions that were tried, if need be. None, or why it cannot be done."""
    npm = shutil.which("npm")
    if npm is None:
        return "npm is missing: install Node.js, the agents come from its registry"
    wanted = (_CLIENTS / "package.json").read_text()
    done = _INSTALLED / "installed.json"
    if done.is_file() and done.read_text() == wanted:
        return None
    _INSTALLED.mkdir(exist_ok=True)
    (_INSTALLED / "package.json").write_text(wanted)
    command = [npm, "install", "--no-audit", "--no-fund", "--no-package-lock"]
    try:
        tried = subprocess.run(
            command, cwd=_INSTALLED, capture_output=True, text=True, timeout=_INSTALL_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return "npm cannot install the agents: its registry does not answer"
    if tried.returncode:
        return f"npm cannot install the agents: {tried.stderr.strip()[-500:]}"
    done.write_text(wanted)
    return None


@dataclass(frozen=True)
class Workplace:
    """A throw-away home and working directory of an agent that talks to the server at `url`."""

    agent: Agent
    url: str
    home: Path
    work: Path

    @classmethod
    def prepare(cls, agent: Agent, url: str, folder: Path) -> Workplace:
        place = cls(agent, url, folder / "home", folder / "work")
        place.home.mkdir()
        settings = agent.folder / "home"
        for file in settings.rglob("*"):
            if file.is_file():
                copy = place.home / file.relative_to(settings)
                copy.parent.mkdir(parents=True, exist_ok=True)
                copy.write_text(file.read_text().replace("$URL", url))
        return place

    def run(self, start: tuple[str, ...], prompt: str) -> str:
        """What the agent prints as its answer to `prompt`; it must end well."""
        program, *arguments = start
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "TMPDIR": str(self.home),
            **{name: value.replace("$URL", self.url) for name, value in self.agent.environment},
        }
        ended = subprocess.run(
            [str(_INSTALLED / "node_modules" / ".bin" / program), *arguments, prompt],
            cwd=self.work,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_RUN_SECONDS,
            check=False,
        )
        assert ended.returncode == 0, ended.stdout[-2000:] + ended.stderr[-4000:]
        return ended.stdout


@dataclass(frozen=True)
class TurnLine:
    """One answered request that could call tools, as the log sums it up; numbers of tokens."""

    prompt: int
    reused: int
    generated: int

    @property
    def live(self) -> int:
        """What the state holds after it."""
        return self.prompt + self.generated


class AgentServer:
    """A running `ds4 serve`; its log is a file of JSON lines."""

    def __init__(self, log: Path) -> None:
        self._log = log

    @property
    def lines(self) -> list[dict[str, Any]]:
        text = self._log.read_text()
        return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]

    @property
    def url(self) -> str | None:
        """Where it listens; None before it does."""
        found = re.search(r"listening on (http://[0-9.:]+)", self._log.read_text())
        return found[1] if found else None

    @property
    def turns(self) -> list[TurnLine]:
        return [
            TurnLine(line["prompt_tokens"], line["reused_tokens"], line["generated_tokens"])
            for line in self.lines
            if "prompt_tokens" in line and " TOOLS " in line["text"]
        ]


@contextmanager
def serving(script: str, folder: Path) -> Iterator[AgentServer]:
    """A server in a process of its own that plays `script`; it must stop in good order."""
    path, log = folder / "script.json", folder / "log"
    path.write_text(script)
    command = [sys.executable, "-m", "apps.cli", "serve", "--backend", "scripted", "--script", str(path)]
    options = ["--port", "0", "--ctx", "200000", "--no-kv-disk"]
    with log.open("w") as stderr:
        process = subprocess.Popen(
            command + options, cwd=_ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=stderr
        )
    server = AgentServer(log)
    try:
        wait_for(lambda: server.url is not None or process.poll() is not None, 60)
        yield server
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()
