from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pytest

from shared.errors import ModelFileError, UsageError
from shared.model.reference_engine import load as load_reference
from shared.session import Engine
from tests.support.golden import golden_json, tiny_q2
from tests.support.limits import FLOAT_LIMIT

mx = pytest.importorskip("mlx.core")

from bench.host_overhead import primitives  # noqa: E402
from ds4mlx.engine import load  # noqa: E402
from ds4mlx.operations import plain_operations  # noqa: E402
from tests.support.mlx_models import engine  # noqa: E402


def test_an_engine_describes_its_model() -> None:
    whole = engine()
    assert whole.backend == "mlx"
    assert (whole.model_id, whole.quant_bits, whole.power.percent) == (0, 2, 100)
    assert whole.shape.layer_count == 6
    assert any("test shape" in note for note in whole.notes)
    prompt = golden_json("prompts.json")["short"]
    assert whole.tokenizer.vocabulary_size == whole.shape.vocabulary_size
    assert len(prompt["ids"]) == 27


def test_the_other_models_differ_where_they_should() -> None:
    q4, pro = engine("tiny-q4"), engine("tiny-pro-q2")
    assert (q4.quant_bits, pro.quant_bits, pro.model_id) == (4, 2, engine("tiny-pro-q2").shape.model_id)


def test_the_memory_plan_counts_what_is_held() -> None:
    plan = engine().memory_plan(2048)
    state = engine().open_session(2048)._state  # type: ignore[attr-defined]
    assert state.nbytes == plan.raw + plan.compressed
    unrounded = engine(activation="float")
    plan = unrounded.memory_plan(100)
    assert unrounded.open_session(100)._state.nbytes == plan.raw + plan.compressed  # type: ignore[attr-defined]


def test_loading_reports_its_progress() -> None:
    seen: list[tuple[int, int]] = []
    whole = load(tiny_q2(), progress=lambda done, total: seen.append((done, total)), load="copy", power=50)
    assert seen == [(layer, 6) for layer in range(7)]
    assert whole.power.percent == 50
    whole.close()
    assert whole.open_session(8).sync([1, 2]) == (0, 2)


def test_dimensions_without_a_kernel_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    class Trusting:
        def trusted(self) -> list[str]:
            return []

        def maker(self, operation: str) -> Any:
            return None

        def warnings(self) -> list[str]:
            return ["kernels failed their check on this device (route: off)"]

    monkeypatch.setattr("ds4mlx.kernel_choice.choose_kernels", lambda mx: Trusting())
    refused = replace(plain_operations(engine().shape, rounds=True), refusals=["route: too few experts"])
    monkeypatch.setattr("ds4mlx.operations.make_operations", lambda *_, **__: refused)
    whole = load(tiny_q2())
    assert whole.notes[-2:] == [
        "kernels failed their check on this device (route: off)",
        "plain operations instead of a kernel: route: too few experts",
    ]
    whole.close()


def test_the_modes_are_the_two_that_mlx_has() -> None:
    with pytest.raises(UsageError, match="no 8-bit activations: use --activation kv or float"):
        load(tiny_q2(), activation="actq")


def test_a_decode_step_may_see_all_rows_up_to_a_limit() -> None:
    """As in the reference; a prefill of the same tokens always chooses."""
    tokens = golden_json("prompts.json")["random"]["ids"][:128]
    limits = (0, 30, 1024)
    assert engine().shape.index_top_k < len(tokens) // 4 - 1 < limits[2]

    def logits(whole: Engine) -> list[npt.NDArray[np.float32]]:
        session = whole.open_session(200)
        session.sync(tokens[:-1])
        found = [session.logits()]
        session.submit(tokens[-1])
        return [*found, session.logits()]

    always, below, dense = (logits(engine(activation="float", dense_index_rows=rows)) for rows in limits)
    assert all(np.array_equal(a, b) for a, b in zip(always, below, strict=True))
    assert np.array_equal(always[0], dense[0])
    assert np.abs(always[1] - dense[1]).max() > 1e-3
    expected = logits(load_reference(tiny_q2(), activation="float", dense_index_rows=1024))
    assert np.abs(dense[1] - expected[1]).max() <= FLOAT_LIMIT


def test_a_file_that_is_no_model_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "not.gguf"
    path.write_bytes(b"nothing of the kind" * 9)
    with pytest.raises(ModelFileError):
        load(path)


def test_importing_the_engine_imports_no_array_library() -> None:
    code = "import sys, ds4mlx.engine; sys.exit('mlx.core' in sys.modules)"
    root = Path(__file__).parents[3]
    assert subprocess.run([sys.executable, "-c", code], cwd=root, check=False).returncode == 0


def test_a_chosen_chunk_reaches_the_session() -> None:
    whole = engine(prefill_chunk=32)
    assert whole.memory_plan(400).prefill_chunk == 32


def test_loading_leaves_nothing_to_compute_but_steps() -> None:
    whole = load(tiny_q2())
    first = primitives(whole._model, 9)
    whole.open_session(32).sync([1, 2, 3])
    assert primitives(whole._model, 9) == first
    whole.close()


@pytest.mark.parametrize("planned", [None, 1 << 40])
def test_what_was_planned_is_kept_resident_once_the_weights_are_there(
    planned: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[object] = []
    monkeypatch.setattr("ds4mlx.engine.set_wired_limit", lambda _, needed: events.append(needed))
    whole = load(tiny_q2(), planned_bytes=planned, progress=lambda done, _: events.append(f"layer {done}"))
    assert events[-2:] == ["layer 6", whole.weight_bytes if planned is None else planned]
    assert len(events) == 8
    whole.open_session(64).sync([1, 2, 3])
    assert len(events) == 8
    whole.close()


@pytest.mark.parametrize(
    ("method", "no_touch", "adopted", "touched"),
    [("mmap", "", 18, 18), ("mmap", "1", 18, 0), ("copy", "", 0, 0)],
)
def test_experts_stay_in_the_file_where_memory_is_shared(
    method: Literal["mmap", "copy"],
    no_touch: str,
    adopted: int,
    touched: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As on a Mac, all but the GPU. The answers are those of copied weights."""
    imports: list[int] = []
    touches: list[int] = []

    def share(words: npt.NDArray[np.uint64], copy: bool) -> mx.array:
        assert copy is False
        imports.append(words.nbytes)
        return mx.array(words)

    monkeypatch.setattr(mx, "from_dlpack", share)
    monkeypatch.setattr(mx.metal, "is_available", lambda: True)
    monkeypatch.setattr("ds4mlx.engine.set_wired_limit", lambda *_: 0)
    monkeypatch.setattr("ds4mlx.adoption.touch_pages", lambda data: touches.append(data.nbytes))
    monkeypatch.setenv("DS4_NO_TOUCH", no_touch)
    whole = load(tiny_q2(), load=method)
    assert (len(imports), len(touches)) == (adopted, touched)
    assert not any("copying" in note for note in whole.notes)
    tokens = golden_json("prompts.json")["short"]["ids"]
    found, expected = whole.open_session(64), engine().open_session(64)
    for session in (found, expected):
        session.sync(tokens)
    assert np.array_equal(found.logits(), expected.logits())
    whole.close()


def test_weights_that_cannot_stay_in_the_file_are_copied_and_said_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(words: object, copy: bool) -> mx.array:
        raise ValueError("not here")

    monkeypatch.setattr(mx, "from_dlpack", refuse)
    monkeypatch.setattr(mx.metal, "is_available", lambda: True)
    monkeypatch.setattr("ds4mlx.engine.set_wired_limit", lambda *_: 0)
    whole = load(tiny_q2())
    assert [note for note in whole.notes if "copying" in note] == [
        "copying weights that cannot be mapped (blk.0.ffn_gate_exps.weight: not here)"
    ]
    whole.close()
