"""Sixty-four clients, two thousand requests, a tenth of whom leave: nothing hangs, leaks or is mixed up."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import httpx
import pytest

from tests.support.api_server import wait_for
from tests.support.load import load_script, run_load

_ROOT = Path(__file__).parents[2]


def _kilobytes(pid: int) -> int:
    """Resident memory of a process."""
    return int(subprocess.run(["ps", "-o", "rss=", "-p", str(pid)], capture_output=True, check=True).stdout)


@pytest.mark.long
def test_memory_is_flat_and_every_answer_exact(tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text(json.dumps(load_script()))
    command = [sys.executable, "-m", "apps.cli", "serve", "--backend", "scripted", "--script", str(script)]
    command += ["--port", "0", "--ctx", "16384", "--sessions", "4", "--log-format", "text"]
    command += ["--kv-disk-dir", str(tmp_path / "store"), "--kv-disk-space-mb", "2", "--kv-no-fsync"]
    lines: list[str] = []
    with subprocess.Popen(command, cwd=_ROOT, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        reader = threading.Thread(target=lines.extend, args=(server.stderr,))
        reader.start()
        try:
            wait_for(lambda: any("listening on" in line for line in lines), 60)
            url = next(found[1] for line in lines if (found := re.search(r"listening on (http://\S+)", line)))
            host, port = url.removeprefix("http://").split(":")
            memory: list[int] = []
            load = asyncio.run(
                run_load(
                    (host, int(port)),
                    clients=64,
                    requests=2000,
                    seed=7,
                    every_hundred=lambda done: memory.append(_kilobytes(server.pid)),
                )
            )
            assert load.wrong == []
            assert load.answered + load.left == 2000
            assert load.left >= 150
            health = f"{url}/health"
            wait_for(lambda: (seen := httpx.get(health).json())["running"] == seen["queued"] == 0, 30)
            second_half = memory[len(memory) // 2 :]
            assert max(second_half) <= 1.05 * second_half[0], memory
            server.send_signal(signal.SIGTERM)
            assert server.wait(60) == 0
        finally:
            server.kill()
            reader.join()
    text = "".join(lines)
    assert lines[-1].endswith("stopped\n")
    assert "Traceback" not in text
    assert not re.search(r"\berror\b|internal|Task |never awaited", text)
