"""The servers under measure: ours with the scripted engine, and `mlx_lm.server` with a tiny model.

Owns their processes, and what their engines take without a server.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from shared.generate import Generation, GenerationSettings
from shared.sampling import GREEDY
from shared.scripted.engine import ScriptedEngine
from shared.scripted.script_file import parse_script
from shared.text.messages import Message
from shared.text.template import render_chat
from shared.text.turn import Turn

# Asks for 8 tokens; without it there are 600.
BRIEFLY = "briefly"
_ROOT = Path(__file__).parents[1]
_SCRIPT = {"turns": [{"match": BRIEFLY, "pieces": ["a"] * 8}, {"pieces": ["a"] * 600}]}
_PEER = Path(__file__).with_name("serve_peer.py")
_BARE_TOKENS = 600


class Bare(NamedTuple):
    """An engine without a server, at its best: milliseconds to the first token, and tokens a second."""

    first_ms: float
    rate: float


class Server:
    """A process that listens on `port`."""

    def __init__(self, name: str, command: list[str], port: int, log: Path, bare: Bare) -> None:
        self.name = name
        self.port = port
        self.bare = bare
        self._log = log.open("wb")
        self._process = subprocess.Popen(command, cwd=_ROOT, stderr=self._log, stdout=self._log)
        try:
            self._wait(log)
        except BaseException:
            self.stop()
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(30)
        self._log.close()

    def _wait(self, log: Path) -> None:
        end = time.monotonic() + 60
        while self._process.poll() is None and time.monotonic() < end:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.1)
        raise RuntimeError(f"{self.name} does not listen:\n{log.read_text()[-2000:]}")


def our_server(folder: Path) -> Server:
    """`ds4 serve` with 16 sessions and no store."""
    path, port = folder / "script.json", _free_port()
    path.write_text(json.dumps(_SCRIPT))
    command = [sys.executable, "-m", "apps.cli", "serve", "--backend", "scripted", "--script", str(path)]
    command += ["--port", str(port), "--sessions", "16", "--ctx", "16384", "--no-kv-disk"]
    return Server("ds4 serve", command, port, folder / "ours.log", _bare_scripted())


def peer_server(folder: Path, python: str) -> Server:
    """`mlx_lm.server` of the interpreter `python`."""
    model, port = folder / "model", _free_port()
    made = subprocess.run(
        [python, str(_PEER), str(model), str(_BARE_TOKENS)], capture_output=True, text=True, check=False
    )
    if made.returncode:
        raise RuntimeError(f"mlx-lm does not run:\n{made.stderr[-2000:]}")
    bare = Bare(*json.loads(made.stdout.splitlines()[-1]))
    command = [python, "-m", "mlx_lm", "server", "--model", str(model), "--port", str(port)]
    return Server("mlx_lm.server", command, port, folder / "peer.log", bare)


def _bare_scripted() -> Bare:
    """The scripted engine and the decode loop, as the server uses them."""
    engine = ScriptedEngine(parse_script(json.dumps(_SCRIPT)))
    firsts, rates = [], []
    for brief in [True, False] * 6:
        session = engine.open_session(16384)
        prompt = [Message("user", ("Tell me about the harbour. " * 8) + BRIEFLY * brief)]
        tokens = engine.tokenizer.encode_segments(
            render_chat(prompt, None, effort="none", profile="official")
        )
        settings = GenerationSettings(GREEDY, _BARE_TOKENS)
        began = time.perf_counter()
        session.sync(tokens)
        generation = Generation(session, engine.tokenizer, Turn(thinking=False, tools=None), settings)
        steps = iter(generation)
        next(steps)
        first = time.perf_counter()
        for _ in steps:
            pass
        if brief:
            firsts.append(1000 * (first - began))
        else:
            rates.append((_BARE_TOKENS - 1) / (time.perf_counter() - first))
        session.close()
    return Bare(min(firsts), max(rates))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
