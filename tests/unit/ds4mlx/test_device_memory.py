"""Device memory while prompts come and go: what grows with the context is allocated once, and no evaluation
is a long one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

mx = pytest.importorskip("mlx.core")

from ds4mlx.model import Streams  # noqa: E402
from ds4mlx.session import MlxSession  # noqa: E402
from shared.power import PowerGovernor  # noqa: E402
from tests.support.golden import golden_logits  # noqa: E402
from tests.support.mlx_models import model  # noqa: E402

TOKENS = golden_logits("tiny-q2", "long")["tokens"][:300].tolist()


def large_buffers(session: MlxSession) -> list[int]:
    """Where the compressed rows, which grow with the context, are in memory."""
    state = session._state
    assert state is not None
    rows = [array for layer in state.compressed if layer is not None for array in layer.arrays()]
    mx.eval(rows)
    return [int(np.array(array, copy=False).ctypes.data) for array in rows]


def test_all_requests_use_the_buffers_that_the_session_began_with() -> None:
    """Allocating and freeing large buffers beside other users of the GPU has brought whole machines down."""
    session = MlxSession(model(), 2048, 64, PowerGovernor(100))
    first = large_buffers(session)
    for prompt in (TOKENS[:200], TOKENS[100:], TOKENS[:130]):
        session.sync(prompt)
        mark = session.mark()
        for token in (5, 6, 7):
            session.submit(token)
        session.undo()
        session.rewind(mark)
        assert large_buffers(session) == first
    session.close()


def test_a_prefill_step_is_evaluated_layer_by_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    """One evaluation of a whole step would keep the GPU from everything else for too long."""
    whole = model()
    session = MlxSession(whole, 1024, 128, PowerGovernor(100))
    events: list[str] = []
    run_experts, evaluate = whole.experts, mx.eval

    def experts(*arguments: Any) -> mx.array:
        events.append("layer")
        return run_experts(*arguments)

    def recorded(*arguments: Any) -> None:
        events.append("eval")
        evaluate(*arguments)

    monkeypatch.setattr(whole, "experts", experts)
    monkeypatch.setattr(mx, "eval", recorded)
    session.sync(TOKENS)
    steps = -(-len(TOKENS) // 128)
    assert events.count("layer") == steps * whole.shape.layer_count
    between = "".join(event[0] for event in events)
    assert "ll" not in between
    session.close()


def test_a_step_keeps_no_more_rows_than_its_rings_hold() -> None:
    """Nor on its way: all rows of all layers would be more than what a layer needs."""
    whole = model()
    state = whole.open_state(2048)
    tokens = mx.array([token for _ in range(4) for token in TOKENS][:1000], mx.int32)
    held: list[int] = []

    def layer_done(layer: int, streams: Streams, rows: list[mx.array]) -> None:
        mx.eval(streams.arrays(), rows)
        held.append(mx.get_active_memory() - sum(array.nbytes for array in streams.arrays()))

    result = whole.forward(tokens, state, layer_done)
    left = [*result.rows, *(rows for rows in result.frontiers if rows is not None)]
    rings = state.raw.nbytes + sum(ring.nbytes for ring in state.frontiers.values())
    assert sum(array.nbytes for array in left) <= rings
    # Both layers are of one kind.
    assert held[-1] - held[-3] <= rings
