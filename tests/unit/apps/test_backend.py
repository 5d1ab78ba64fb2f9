"""Which backend is opened, and what is said when one cannot be."""

from pathlib import Path

import pytest

from apps import backend
from apps.backend import choose_backend, open_engine, open_tokenizer, warm, why_unavailable
from apps.lock import AlreadyRunning
from apps.memory import NotEnoughMemory
from apps.options import EngineOptions
from shared.errors import BackendUnavailable, ModelFileError, UsageError
from tests.support.golden import tiny_q2
from tests.support.scripts import script_file, turn


def _choose(**fields):
    said = []
    return choose_backend(EngineOptions(**fields), said.append), said


def test_a_named_backend_is_taken():
    for name in ("mlx", "cuda", "reference", "scripted"):
        assert _choose(backend=name) == (name, [])


def test_auto_prefers_mlx_and_says_when_it_cannot(monkeypatch):
    monkeypatch.setattr(backend, "why_unavailable", lambda _: None)
    assert _choose() == ("mlx", [])
    monkeypatch.setattr(backend, "why_unavailable", lambda _: "it is Tuesday")
    assert _choose() == ("reference", ["using the slow NumPy reference backend: it is Tuesday"])


def test_auto_points_out_a_gpu_that_cuda_would_use(monkeypatch):
    monkeypatch.setattr(backend, "_importable", lambda name: True)
    monkeypatch.setattr(backend, "why_unavailable", lambda name: None)
    assert _choose() == ("mlx", ["an NVIDIA GPU is here: --backend cuda uses it"])
    assert _choose(backend="mlx") == ("mlx", [])
    monkeypatch.setattr(backend, "why_unavailable", {"cuda": "no driver"}.get)
    assert _choose() == ("mlx", [])


def test_a_script_means_the_scripted_backend(tmp_path):
    assert _choose(script=tmp_path)[0] == "scripted"
    with pytest.raises(UsageError, match="--script goes with --backend scripted, not mlx"):
        _choose(script=tmp_path, backend="mlx")


def test_the_scripted_engine_needs_its_script(tmp_path):
    with pytest.raises(UsageError, match=r"needs --script FILE\.json"):
        open_engine(EngineOptions(backend="scripted"))
    engine = open_engine(EngineOptions(script=script_file(tmp_path, turn("x")), power=50))
    assert (engine.backend, engine.power.percent) == ("scripted", 50)


def test_a_backend_that_cannot_run_says_why(monkeypatch):
    with pytest.raises(BackendUnavailable, match="CuPy is not installed: install ds4 with its extra `cuda`"):
        open_engine(EngineOptions(backend="cuda"))
    monkeypatch.setattr(backend, "_importable", lambda _: False)
    with pytest.raises(BackendUnavailable, match="MLX is not installed"):
        open_engine(EngineOptions(backend="mlx"))
    assert why_unavailable("reference") is None


def test_what_does_not_fit_is_refused_before_anything_is_opened(monkeypatch):
    monkeypatch.setattr(backend, "_open_reference", lambda *_: pytest.fail("opened"))
    options = EngineOptions(model=tiny_q2(), backend="reference", context=1_000_000, simulate_memory="1GB")
    with pytest.raises(NotEnoughMemory, match="use --ctx"):
        open_engine(options)


def test_a_large_model_takes_the_lock(monkeypatch):
    def hold(size):
        assert size == tiny_q2().stat().st_size
        raise AlreadyRunning("another")

    monkeypatch.setattr(backend, "hold_instance_lock", hold)
    with pytest.raises(AlreadyRunning):
        open_engine(EngineOptions(model=tiny_q2(), backend="reference"))


def test_a_file_that_is_no_model_is_refused(tmp_path):
    (tmp_path / "x.gguf").write_bytes(b"nonsense")
    with pytest.raises(ModelFileError):
        open_engine(EngineOptions(model=tmp_path / "x.gguf", backend="reference"))


def test_settings_reach_the_engine(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    said = []
    options = EngineOptions(
        backend="reference", prefill_chunk=64, effort_profile="official", power=70, warm_weights=True
    )
    engine = open_engine(options, say=said.append)
    assert engine.memory_plan(1000).prefill_chunk == 64
    assert (engine.effort_profile, engine.power.percent) == ("official", 70)
    assert "demonstration model" in said[0]
    engine.close()


def test_the_tokenizer_alone(tmp_path):
    assert open_tokenizer(EngineOptions(model=tiny_q2())).vocabulary_size == 1280
    script = script_file(tmp_path, turn("x"))
    assert open_tokenizer(EngineOptions(script=script)).encode_text("a") == [97]


def test_warming_reads_the_file(tmp_path):
    (tmp_path / "weights").write_bytes(b"x" * 1000)
    warm(tmp_path / "weights")
    with pytest.raises(FileNotFoundError):
        warm(tmp_path / "none")


def test_the_plan_is_told_before_it_is_refused() -> None:
    said: list[str] = []
    options = EngineOptions(model=tiny_q2(), backend="reference", context=1_000_000, simulate_memory="64MB")
    with pytest.raises(NotEnoughMemory, match="use --ctx"):
        open_engine(options, say=said.append)
    assert len(said) == 1
    assert said[0].startswith("weights 9.49 MiB, context buffers ")


def test_the_plan_counts_all_sessions(tmp_path: Path) -> None:
    said: list[str] = []
    options = EngineOptions(
        script=script_file(tmp_path, turn("x")), context=1 << 20, sessions=2, checkpoint_bytes=3 << 20
    )
    open_engine(options, say=said.append)
    assert "context buffers 11.00 MiB" in said[0]
    assert said[0].endswith("sessions=2, checkpoints=3 MiB)")
    with pytest.raises(NotEnoughMemory, match=r"^4 sessions of"):
        open_engine(
            EngineOptions(
                model=tiny_q2(), backend="reference", context=100_000, sessions=4, simulate_memory="256MB"
            )
        )
