"""The tiny models with every operation as a simulated kernel, against the golden logits."""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt
import pytest

from tests.ksim import clang_missing
from tests.support.golden import golden_logits
from tests.support.limits import differences

pytestmark = pytest.mark.skipif(clang_missing() is not None, reason=str(clang_missing()))
mx = pytest.importorskip("mlx.core")

from ds4mlx.kernels.registry import OPERATIONS, operation  # noqa: E402
from ds4mlx.session import MlxSession  # noqa: E402
from shared.power import PowerGovernor  # noqa: E402
from tests.support.kernel_models import Launches, simulated_model  # noqa: E402
from tests.support.mlx_models import Run  # noqa: E402

LONG = pytest.mark.long
# The row for half-precision inputs in tests/golden/README.md.
MEDIAN, SAME_BEST = 0.03, 0.97
# Tokens that go one by one after a prompt's first ones; their steps end windows of both ratios.
DECODED = 6


def logits_of(name: str, prompt: str, mode: str, cut: int, launches: Launches) -> npt.NDArray[np.float32]:
    """Of all positions: `cut` tokens in one step, then some one by one, then the rest in one step."""
    run = Run(simulated_model(name, mode, launches))
    tokens = golden_logits(name, prompt)["tokens"].tolist()
    parts = [run.feed(tokens[:cut]), run.feed_in(tokens[cut : cut + DECODED], 1)]
    return np.concatenate([*parts, run.feed(tokens[cut + DECODED :])])


@pytest.mark.parametrize(
    ("name", "prompt", "mode", "cut"),
    [
        ("tiny-q2", "medium", "kv", 124),
        pytest.param("tiny-q2", "medium", "float", 124, marks=LONG),
        pytest.param("tiny-q2", "long", "kv", 508, marks=LONG),
        pytest.param("tiny-q4", "medium", "kv", 124, marks=LONG),
        pytest.param("tiny-pro-q2", "long", "kv", 379, marks=LONG),
    ],
)
def test_logits_with_every_kernel(name: str, prompt: str, mode: str, cut: int) -> None:
    golden, launches = golden_logits(name, prompt), Launches()
    logits = logits_of(name, prompt, mode, cut, launches)[golden["positions"]]
    expected = golden[f"logits_{mode}"]
    assert np.median(differences(logits, expected)) <= MEDIAN
    assert (logits.argmax(axis=1) == expected.argmax(axis=1)).mean() >= SAME_BEST
    assert not missing(launches, name, mode)


def missing(launches: Launches, model: str, mode: str) -> set[str]:
    """Kernels that such a run should have launched and did not."""
    launched = {re.sub(r"^ds4_|_[0-9a-f]{10}[cd]*$", "", name) for name in launches.names}
    every = {kernel.name for name in OPERATIONS for kernel in operation(name).KERNELS}
    # Of experts' kernels there is one for each block type.
    held = ("gate_up_q4_k", "down_q4_k") if model == "tiny-q4" else ("gate_up_iq2_xxs", "down_q2_k")
    of_a_type = re.compile("(gate_up|down)_(iq2_xxs|q2_k|q4_k)$")
    expected = {name for name in every if name.endswith(held) or not of_a_type.search(name)}
    if mode == "float":
        expected.remove("attend_prefill")  # its rows are float16
    if model == "tiny-pro-q2":
        expected.remove("attention_rows_window_only")  # every layer is compressed
    return expected - launched


def test_the_order_of_threads_does_not_matter() -> None:
    """Bit for bit: what a GPU computes may not change from run to run."""
    outcomes = [logits_of("tiny-q2", "short", "kv", 20, Launches(seed=seed)) for seed in (0, 3)]
    assert np.array_equal(*outcomes)


@LONG
def test_a_session_on_kernels_goes_back_without_a_trace() -> None:
    session = MlxSession(simulated_model("tiny-q2", "kv", Launches()), 400, 4096, PowerGovernor())
    tokens = golden_logits("tiny-q2", "random")["tokens"].tolist()
    session.sync(tokens[:131])
    before = session.snapshot()
    session.submit(tokens[131])
    after = session.snapshot()
    session.undo()
    assert session.snapshot() == before
    session.restore(after)
    session.submit(5)
    logits = session.logits()
    session.restore(before)
    session.submit(tokens[131])
    session.submit(5)
    assert np.array_equal(session.logits(), logits)
