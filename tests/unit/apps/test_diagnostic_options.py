"""`--activation` and `--dense-index-rows` reach the engine from every command that has them."""

import importlib
import json

import pytest

from apps import cli
from shared.errors import UsageError
from tests.support.golden import tiny_q2

LOADERS = {"mlx": "ds4mlx.engine", "reference": "shared.model.reference_engine", "cuda": "ds4cuda.engine"}


@pytest.fixture
def commands(tmp_path):
    ids = tmp_path / "ids.json"
    ids.write_text(json.dumps([1, 2, 3, 4]))
    model = ["-m", str(tiny_q2()), "--prompt-tokens", str(ids)]
    return {
        "chat": ["chat", *model, "--ctx", "64"],
        "bench": ["bench", *model, "--ctx-start", "2", "--ctx-max", "4"],
    }


@pytest.mark.parametrize("backend", LOADERS)
@pytest.mark.parametrize("command", ["chat", "bench"])
def test_they_reach_the_engine(commands, command, backend, monkeypatch):
    seen = []

    def load(path, **settings):
        seen.append((settings["activation"], settings["dense_index_rows"]))
        raise UsageError("far enough")

    monkeypatch.setattr(importlib.import_module(LOADERS[backend]), "load", load)
    monkeypatch.setattr("ds4cuda.availability.why_unavailable", lambda: None)
    monkeypatch.setattr("ds4cuda.availability.open_cupy", lambda: None)
    monkeypatch.setattr("ds4cuda.availability.free_memory", lambda cupy: 1 << 40)
    arguments = [*commands[command], "--backend", backend]
    assert cli.main(arguments) == 2
    assert cli.main([*arguments, "--quality"]) == 2
    assert cli.main([*arguments, "--activation", "float", "--dense-index-rows", "1024"]) == 2
    assert cli.main([*arguments, "--activation", "actq", "--quality"]) == 2
    own = "actq" if backend == "cuda" else "kv"
    assert seen == [(own, 0), ("kv", 0), ("float", 1024), ("actq", 0)]


def test_mlx_names_the_activations_it_has(commands, capsys):
    assert cli.main([*commands["chat"], "--backend", "mlx", "--activation", "actq"]) == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.endswith("use --activation kv or float, or --backend reference")
