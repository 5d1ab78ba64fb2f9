"""The MLX session: its protocol, choices, faults, and memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from shared.errors import Cancelled, ContextFullError, EngineFault, SessionInvalid
from shared.kv.payload import payload_size
from shared.power import PowerGovernor
from shared.sampling import GREEDY, Sampling, choose
from tests.support.golden import golden_logits
from tests.support.lookahead_contract import check_look_ahead

mx = pytest.importorskip("mlx.core")

from ds4mlx.model import Model  # noqa: E402
from ds4mlx.picking import GreedyPick  # noqa: E402
from ds4mlx.session import MlxSession  # noqa: E402
from tests.support.mlx_models import engine  # noqa: E402

TOKENS: list[int] = golden_logits("tiny-q2", "random")["tokens"].tolist()


def open_session(context: int = 400, **settings: Any) -> Any:
    return engine(**settings).open_session(context)


def synced(length: int, context: int = 400) -> Any:
    session = open_session(context)
    session.sync(TOKENS[:length])
    return session


def test_a_prompt_is_evaluated_once() -> None:
    session = open_session()
    assert session.position == 0
    assert session.sync(TOKENS[:20]) == (0, 20)
    assert session.sync(TOKENS[:20]) == (20, 0)
    assert session.sync(TOKENS[:27]) == (20, 7)
    assert session.tokens == TOKENS[:27]
    assert session.common_prefix([*TOKENS[:5], 0]) == 5
    assert session.sync(TOKENS[1:9]) == (0, 8)
    assert session.tokens == TOKENS[1:9]
    assert session.payload_bytes() == payload_size(engine().shape, 8, 400)


def test_a_rebuilt_timeline_owes_nothing_to_the_old_one() -> None:
    used, fresh = synced(150), synced(70)
    used.sync(TOKENS[1:9])
    used.sync(TOKENS[:70])
    assert used.snapshot() == fresh.snapshot()


def test_wrong_prompts_are_refused_and_change_nothing() -> None:
    session = synced(10, context=20)
    before = session.snapshot()
    with pytest.raises(ContextFullError):
        session.sync(TOKENS[:20])
    for wrong in ([], [-1], [engine().shape.vocabulary_size]):
        with pytest.raises(ValueError, match="prompt"):
            session.sync(wrong)
    with pytest.raises(ValueError, match="outside the vocabulary"):
        session.submit(1280)
    assert session.snapshot() == before


def test_the_context_can_be_filled_to_its_last_token() -> None:
    session = synced(14, context=15)
    session.submit(TOKENS[14])
    assert session.position == session.context == 15
    with pytest.raises(ContextFullError):
        session.submit(5)
    assert np.isfinite(session.logits()).all()


@pytest.mark.parametrize("context", [1, 2, 5, 127, 128, 129])
def test_small_contexts(context: int) -> None:
    small, large = open_session(context), open_session(400)
    for session in (small, large):
        if context > 5:
            session.sync(TOKENS[: context - 3])
        for token in TOKENS[session.position : context]:
            session.submit(token)
    assert np.array_equal(small.logits(), large.logits())


def test_progress_counts_the_new_tokens_of_each_step() -> None:
    seen: list[tuple[int, int]] = []
    session = synced(10)
    session.sync(TOKENS[:100], progress=lambda done, total: seen.append((done, total)), quantum=32)
    assert seen == [(0, 90), (22, 90), (54, 90), (86, 90), (90, 90)]


def test_steps_end_at_multiples_of_the_chunk() -> None:
    session = open_session(name="tiny-q2", prefill_chunk=64)
    seen: list[int] = []
    session.sync(TOKENS[:10])
    session.sync(TOKENS[:150], progress=lambda done, _: seen.append(done))
    assert seen == [0, 54, 118, 140]


def test_progress_may_stop_a_sync_between_steps() -> None:
    def stop(done: int, total: int) -> None:
        if done >= 64:
            raise Cancelled

    session = open_session()
    with pytest.raises(Cancelled):
        session.sync(TOKENS[:200], progress=stop, quantum=64)
    assert session.tokens == TOKENS[:64]
    assert session.snapshot() == synced(64).snapshot()
    assert session.sync(TOKENS[:200]) == (64, 136)


@pytest.mark.parametrize("start", [66, 131])
def test_a_step_cancelled_at_any_layer_leaves_no_trace(start: int) -> None:
    expected = synced(start)
    before = expected.snapshot()
    expected.submit(TOKENS[start])
    for layer in range(engine().shape.layer_count):
        polls = iter([False] * layer + [True])
        session = open_session()
        session.restore(before)
        with pytest.raises(Cancelled):
            session.sync(TOKENS[:290], cancelled=lambda polls=polls: next(polls))
        assert session.tokens == TOKENS[:start]
        assert session.snapshot() == before
        session.submit(TOKENS[start])
        assert session.snapshot() == expected.snapshot()


@pytest.mark.parametrize(
    ("position", "sampling", "length"),
    [
        (2, GREEDY, 3),
        (125, GREEDY, 4),
        (126, Sampling(1.0), 2),
        pytest.param(2, Sampling(1.0), 6, marks=pytest.mark.long),
        pytest.param(122, GREEDY, 8, marks=pytest.mark.long),
        pytest.param(254, Sampling(1.0), 5, marks=pytest.mark.long),
    ],
)
def test_look_ahead_contract(position: int, sampling: Sampling, length: int) -> None:
    """Answers that cross the ends of windows of 4 and of 128 tokens."""
    prompt, tokenizer = TOKENS[:position], engine().tokenizer
    snapshot = synced(position).snapshot()

    def open_at_prompt() -> Any:
        session = open_session()
        session.restore(snapshot)
        return session

    check_look_ahead(open_at_prompt, tokenizer, prompt, length=length, sampling=sampling)


def test_a_greedy_choice_is_not_read_to_build_the_next_step(monkeypatch: pytest.MonkeyPatch) -> None:
    session = synced(6)
    picked = session.pick(GREEDY)
    with monkeypatch.context() as patch:
        patch.setattr(GreedyPick, "value", lambda self: pytest.fail("read too early"))
        session.submit(picked)
        assert session.position == 7
    plain = synced(6)
    plain.submit(picked.value())
    assert session.tokens == plain.tokens
    assert session.snapshot() == plain.snapshot()


def test_choices_are_those_of_the_reference() -> None:
    session = synced(40)
    logits = session.logits()
    allowed = np.zeros(logits.size, np.bool_)
    allowed[[3, 900, 1200]] = True
    for sampling in (GREEDY, Sampling(0.8), Sampling(1.3, top_p=0.9), Sampling(1.0, top_k=5)):
        for mask in (None, allowed):
            for uniform in (0.0, 0.3, 0.77, 0.999):
                picked = session.pick(sampling, uniform, mask)
                assert picked.value() == choose(logits, sampling, uniform, mask)
                assert picked.tokens() == [picked.value()]


def test_a_drawn_choice_belongs_to_the_logits_it_was_made_from() -> None:
    session = synced(40)
    expected = choose(session.logits(), Sampling(1.0), 0.5)
    picked = session.pick(Sampling(1.0), 0.5)
    session.submit(2)
    assert picked.value() == expected


def test_a_failing_step_invalidates_and_the_next_prompt_starts_clean(monkeypatch: pytest.MonkeyPatch) -> None:
    session = synced(30)
    snapshot = session.snapshot()

    def fail(*_: object) -> None:
        raise RuntimeError("device lost")

    with monkeypatch.context() as patch:
        patch.setattr(Model, "forward", fail)
        with pytest.raises(EngineFault, match="device lost"):
            session.submit(1)
        assert session.position == 0
        with pytest.raises(EngineFault):
            session.sync(TOKENS[:9])
    assert session.sync(TOKENS[:30]) == (0, 30)
    assert session.snapshot() == snapshot


def test_an_interrupted_submit_leaves_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    session = synced(9)
    before = session.snapshot()

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(mx, "async_eval", interrupt)
        with pytest.raises(KeyboardInterrupt):
            session.submit(1)
    assert session.snapshot() == before


def test_a_closed_session_says_so() -> None:
    session = synced(3)
    session.close()
    with pytest.raises(SessionInvalid, match="closed"):
        session.sync(TOKENS[:3])


def test_power_rests_after_each_layer_of_a_prefill() -> None:
    rested: list[str] = []

    class Recorder(PowerGovernor):
        def rest(self, unit: str, started: float, interrupted: Any = None) -> None:
            rested.append(unit)

    whole = engine()
    session = MlxSession(whole._model, 64, whole.prefill_chunk, Recorder(50))
    session.sync(TOKENS[:4])
    session.submit(1)
    assert rested == [f"prefill.{layer}" for layer in range(whole.shape.layer_count)]


def test_with_limited_power_a_step_is_done_when_it_is_submitted(monkeypatch: pytest.MonkeyPatch) -> None:
    whole, waited = engine(), []
    for percent in (100, 50):
        session = MlxSession(whole._model, 64, whole.prefill_chunk, PowerGovernor(percent))
        session.sync(TOKENS[:1])
        with monkeypatch.context() as patch:
            patch.setattr(mx, "eval", lambda *_, percent=percent: waited.append(percent))
            session.submit(1)
    assert waited == [50]


def check_memory_is_bounded(steps: int) -> None:
    session = open_session(steps + 64)
    session.sync(TOKENS[:32])
    sizes = []
    for step in range(steps):
        session.submit(session.pick(GREEDY))
        if step in (steps // 2, steps - 1):
            session.logits()
            mx.synchronize()
            sizes.append(mx.get_active_memory())
            assert all(isinstance(token, int) for token in session._evaluated[:-1])
    assert sizes[1] - sizes[0] < 64 << 10
    session.close()


def test_memory_is_bounded() -> None:
    check_memory_is_bounded(40)


@pytest.mark.long
def test_memory_is_bounded_over_2000_steps() -> None:
    check_memory_is_bounded(2000)


def test_steps_write_in_place() -> None:
    """Of a big cache, no step makes a second copy, with look-ahead or without."""
    session = open_session(1 << 17)
    session.sync(TOKENS[:130])
    state = session._state
    largest = max(array.nbytes for array in state.arrays())
    for look_ahead in (True, False):
        mx.synchronize()
        mx.clear_cache()
        before = mx.get_active_memory()
        mx.reset_peak_memory()
        for _ in range(9):
            picked = session.pick(GREEDY)
            session.submit(picked if look_ahead else picked.value())
        session.logits()
        assert mx.get_peak_memory() - before < largest / 2
    session.close()


def test_a_step_is_built_while_the_last_one_runs_and_starts_when_it_is_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A buffer with a reader in flight would be copied by the write instead of written."""
    session = synced(9)
    calls: list[str] = []

    def recorded(owner: Any, name: str) -> None:
        original = getattr(owner, name)

        def call(*arguments: Any, **settings: Any) -> Any:
            calls.append(name)
            return original(*arguments, **settings)

        monkeypatch.setattr(owner, name, call)

    recorded(Model, "forward")
    recorded(mx, "synchronize")
    recorded(mx, "async_eval")
    session.submit(1)
    assert calls == ["forward", "synchronize", "async_eval"]
