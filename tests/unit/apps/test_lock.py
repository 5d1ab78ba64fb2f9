"""Only one process holds a large model."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from apps.lock import LARGE_MODEL_BYTES, AlreadyRunning, hold_instance_lock, lock_path

HOLDER = """
import sys
from pathlib import Path
from apps.lock import hold_instance_lock
hold_instance_lock(10**12, Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


def test_a_second_process_is_refused_until_the_first_ends(tmp_path):
    path = tmp_path / "folder" / "lock"
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(AlreadyRunning, match=f"process {holder.pid}"):
            hold_instance_lock(LARGE_MODEL_BYTES, path)
        holder.stdin.close()
    descriptor = hold_instance_lock(LARGE_MODEL_BYTES, path)
    assert path.read_text() == f"{os.getpid()}\n"
    os.close(descriptor)


def test_small_models_need_no_lock(tmp_path):
    assert hold_instance_lock(LARGE_MODEL_BYTES - 1, tmp_path / "lock") is None
    assert not (tmp_path / "lock").exists()


def test_the_variable_moves_the_file(monkeypatch):
    monkeypatch.setenv("DS4_LOCK_FILE", "/somewhere/lock")
    assert lock_path() == Path("/somewhere/lock")
    monkeypatch.delenv("DS4_LOCK_FILE")
    assert lock_path().name == "ds4.lock"
