"""`--simulate-memory`: what a Mac of that size would say, before anything is allocated here."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from apps import backend, cli, memory
from apps.backend import open_engine, planner_of_file
from apps.memory import GIB, NotEnoughMemory, memory_budget
from apps.options import EngineOptions
from apps.startup import load_progress
from shared.errors import UsageError
from shared.model.known_shapes import FLASH
from tests.support.golden import tiny_q2
from tests.support.model_files import metadata_of, tensors_of, write_hollow

pytest.importorskip("mlx.core")


@pytest.fixture(scope="module")
def flash(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with Flash's header and holes for weights."""
    path = tmp_path_factory.mktemp("flash") / "flash.gguf"
    return write_hollow(path, metadata_of(FLASH), tensors_of(FLASH))


@pytest.fixture
def nothing_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("hold_instance_lock", "warm", "_open_mlx", "_open_reference"):
        monkeypatch.setattr(backend, name, lambda *_: pytest.fail("went on to load"))


@pytest.mark.usefixtures("nothing_loads")
@pytest.mark.parametrize("size", ["48GB", "64GB", "96GB"])
@pytest.mark.parametrize(
    "command", [["chat", "-p", "Hello"], ["bench", "--ctx-alloc"], ["serve", "--port", "0"]]
)
def test_a_million_tokens_on_a_mac_that_is_too_small(
    flash: Path, size: str, command: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The plan, then one line with what would fit, and exit code 1: such machines have frozen instead."""
    context = ["1000000"] if command[-1] == "--ctx-alloc" else ["--ctx", "1000000"]
    if command[0] == "bench":
        (tmp_path / "prompt").write_text("Hello")
        context += ["--prompt-file", str(tmp_path / "prompt")]
    arguments = [*command, *context, "-m", str(flash), "--backend", "mlx", "--simulate-memory", size]
    assert cli.main(arguments) == 1
    lines = capsys.readouterr().err.splitlines()
    (told,) = [number for number, line in enumerate(lines) if f"on a Mac with {size} (simulated)" in line]
    (refused,) = [number for number, line in enumerate(lines) if "a context of 1000000 tokens needs" in line]
    assert told < refused
    assert "weights 83816.34 MiB" in lines[told]
    if size == "96GB":
        assert re.search(r"use --ctx \d+$", lines[refused])
    else:
        assert lines[refused].endswith("a smaller quantisation is needed")


@pytest.mark.usefixtures("nothing_loads")
def test_the_flag_that_is_named_fits_and_more_does_not(flash: Path) -> None:
    options = EngineOptions(model=flash, backend="mlx", context=1_000_000, simulate_memory="96GB")
    with pytest.raises(NotEnoughMemory) as refused:
        open_engine(options, say=lambda _: None)
    fitting = int(str(refused.value).rsplit(maxsplit=1)[-1])
    budget = memory_budget("96GB")
    _, planned = planner_of_file("mlx", flash, None, simulated=True)
    for context, fits in ((fitting, True), (fitting + 256, False)):
        assert (planned(context).total <= budget) is fits


@pytest.mark.usefixtures("nothing_loads")
def test_a_model_that_fits_the_simulated_mac_still_has_to_fit_this_machine(
    flash: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "physical_memory", lambda: 24 * GIB)
    said: list[str] = []
    with pytest.raises(NotEnoughMemory, match=r"but 22\.0\d GiB are available"):
        open_engine(EngineOptions(model=flash, backend="mlx", simulate_memory="128GB"), say=said.append)
    assert said[0].endswith(" on a Mac with 128GB (simulated)")
    assert [line.endswith(" on this machine") for line in said[1:]] in ([], [True])


def test_a_size_that_means_nothing_is_told_before_any_plan() -> None:
    said: list[str] = []
    options = EngineOptions(model=tiny_q2(), backend="mlx", simulate_memory="abc")
    with pytest.raises(UsageError, match=r"^--simulate-memory: 'abc' is not a memory size"):
        open_engine(options, say=said.append)
    assert said == []


def test_doctor_tells_what_that_mac_would(flash: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["doctor", "--json", "-m", str(flash), "--simulate-memory"]
    assert cli.main([*arguments, "128GB"]) == 0
    plan = json.loads(capsys.readouterr().out)["memory_plan"]
    assert plan["text"].startswith("on a Mac with 128GB (simulated): ctx 32768: weights 81.85 GiB + ")
    assert cli.main([*arguments, "64GB"]) == 1
    plan = json.loads(capsys.readouterr().out)["memory_plan"]
    assert plan["text"].startswith("on a Mac with 64GB (simulated): a context of 32768 tokens needs ")


def test_doctor_tells_it_without_mlx(
    flash: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend, "_importable", lambda _: False)
    assert cli.main(["doctor", "--json", "-m", str(flash), "--simulate-memory", "128GB"]) == 0
    assert "on a Mac with 128GB (simulated)" in json.loads(capsys.readouterr().out)["memory_plan"]["text"]


def test_the_engine_learns_what_was_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    import ds4mlx.engine

    settings: dict[str, object] = {}
    monkeypatch.setattr(ds4mlx.engine, "load", lambda _, **given: settings.update(given))
    options = EngineOptions(model=tiny_q2(), backend="mlx", context=4096, sessions=3)
    open_engine(options, say=lambda _: None)
    one = planner_of_file("mlx", tiny_q2(), None)[1](4096)
    assert settings["planned_bytes"] == one.total + 2 * (one.raw + one.compressed)
    assert settings["progress"] is None


def test_loading_a_large_model_is_told_by_quarters() -> None:
    said: list[str] = []
    progress = load_progress(80 * GIB, said.append)
    assert progress is not None
    for layer in range(44):
        progress(layer, 43)
    assert said == [f"loading weights: {part} % of 80.0 GiB" for part in (0, 25, 50, 75, 100)]
