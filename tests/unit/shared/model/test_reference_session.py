"""The session protocol on the reference engine, with the small built-in model."""

from __future__ import annotations

import gc
from collections.abc import Callable

import numpy as np
import pytest

from shared.errors import Cancelled, ContextFullError, EngineFault, SessionInvalid
from shared.model.reference import Reference
from shared.model.reference_engine import ReferenceEngine
from shared.model.reference_session import ReferenceSession
from shared.power import PowerGovernor
from shared.sampling import GREEDY, Sampling
from shared.session import Picked
from tests.support.reference_sessions import TOKENS, sync


class TestSync:
    def test_evaluates_only_the_suffix_of_an_extension(self, session: ReferenceSession) -> None:
        assert session.sync(TOKENS[:10]) == (0, 10)
        assert session.sync(TOKENS[:14]) == (10, 4)
        assert session.tokens == TOKENS[:14]

    def test_an_equal_prompt_evaluates_nothing(self, session: ReferenceSession) -> None:
        session.sync(TOKENS[:10])
        before, calls = session.snapshot(), []
        assert session.sync(TOKENS[:10], progress=lambda *call: calls.append(call)) == (10, 0)
        assert session.snapshot() == before
        assert calls == []

    @pytest.mark.parametrize("tokens", [TOKENS[:9], [*TOKENS[:9], 3, *TOKENS[10:14]]])
    def test_anything_else_starts_from_zero(
        self, tokens: list[int], session: ReferenceSession, engine: ReferenceEngine
    ) -> None:
        session.sync(TOKENS[:10])
        assert session.sync(tokens) == (0, len(tokens))
        assert session.snapshot() == sync(engine, tokens).snapshot()

    def test_common_prefix(self, session: ReferenceSession) -> None:
        assert session.common_prefix(TOKENS) == 0
        session.sync(TOKENS[:10])
        assert session.common_prefix(TOKENS) == 10
        assert session.common_prefix(TOKENS[:4]) == 4
        assert session.common_prefix([*TOKENS[:4], 1279, 7]) == 4

    def test_a_prompt_must_be_shorter_than_the_context(self, engine: ReferenceEngine) -> None:
        session = engine.open_session(12)
        assert session.sync(TOKENS[:11]) == (0, 11)
        with pytest.raises(ContextFullError, match="12 tokens but the context holds 12"):
            session.sync(TOKENS[:12])
        assert session.position == 11

    @pytest.mark.parametrize("tokens", [[], [1, -1], [1280], [0, 2**40]])
    def test_refuses_what_is_no_prompt(self, tokens: list[int], session: ReferenceSession) -> None:
        session.sync(TOKENS[:5])
        with pytest.raises(ValueError, match="prompt"):
            session.sync(tokens)
        assert session.tokens == TOKENS[:5]

    def test_steps_end_at_multiples_of_the_chunk(self, session: ReferenceSession) -> None:
        calls: list[tuple[int, int]] = []
        session.sync(TOKENS[:10])
        session.sync(TOKENS[:150], progress=lambda *call: calls.append(call))
        assert calls == [(0, 140), (54, 140), (118, 140), (140, 140)]

    def test_the_quantum_shortens_steps(self, session: ReferenceSession) -> None:
        calls: list[int] = []
        session.sync(TOKENS[:100], progress=lambda done, _: calls.append(done), quantum=24)
        assert calls == [0, 24, 48, 64, 72, 96, 100]
        with pytest.raises(ValueError, match="at least one token"):
            session.sync(TOKENS[:120], quantum=0)


class TestCancellation:
    def test_between_layers_drops_the_step_and_keeps_the_ones_before(
        self, session: ReferenceSession, engine: ReferenceEngine
    ) -> None:
        polls = 0

        def cancelled() -> bool:
            nonlocal polls
            polls += 1
            return polls == 1 + 2 * (1 + 6) + 1 + 3  # at the start, two steps, the third layer of the next

        with pytest.raises(Cancelled):
            session.sync(TOKENS[:200], cancelled=cancelled)
        assert session.position == 128
        assert session.snapshot() == sync(engine, TOKENS[:128]).snapshot()
        assert session.sync(TOKENS[:200]) == (128, 72)
        assert session.snapshot() == sync(engine, TOKENS[:200]).snapshot()

    def test_from_the_progress_callback_keeps_the_completed_step(self, session: ReferenceSession) -> None:
        def progress(done: int, total: int) -> None:
            if done == 64:
                raise Cancelled

        with pytest.raises(Cancelled):
            session.sync(TOKENS[:200], progress=progress)
        assert session.tokens == TOKENS[:64]
        session.submit(TOKENS[64])

    def test_before_anything_is_done_keeps_the_old_timeline(self, session: ReferenceSession) -> None:
        session.sync(TOKENS[:20])
        before = session.snapshot()
        with pytest.raises(Cancelled):
            session.sync(TOKENS[5:50], cancelled=lambda: True)
        assert session.snapshot() == before

    def test_in_the_first_step_from_zero_leaves_no_state(self, session: ReferenceSession) -> None:
        session.sync(TOKENS[:20])
        answers = iter([False, False, True])
        with pytest.raises(Cancelled):
            session.sync(TOKENS[5:50], cancelled=lambda: next(answers))
        assert session.position == 0
        with pytest.raises(SessionInvalid):
            session.logits()


class TestDecode:
    def test_pick_and_submit(self, session: ReferenceSession) -> None:
        session.sync(TOKENS[:10])
        picked = session.pick(GREEDY)
        assert picked.value() == int(session.logits().argmax())
        session.submit(picked)
        assert session.tokens == [*TOKENS[:10], picked.value()]

    def test_a_step_of_several_tokens_is_taken_back_whole(
        self, session: ReferenceSession, engine: ReferenceEngine
    ) -> None:
        class Drafted(Picked):
            def value(self) -> int:
                return 7

            def tokens(self) -> list[int]:
                return [7, 8, 9]

        session.sync(TOKENS[:126])
        before = session.snapshot()
        session.submit(Drafted())
        assert session.tokens == [*TOKENS[:126], 7, 8, 9]
        session.undo()
        assert session.snapshot() == before

    def test_pick_obeys_mask_and_draw(self, session: ReferenceSession) -> None:
        session.sync(TOKENS[:10])
        allowed = np.zeros(1280, np.bool_)
        allowed[[5, 900]] = True
        assert session.pick(GREEDY, allowed=allowed).value() in (5, 900)
        flat = Sampling(temperature=1e6, min_p=0.0)
        assert session.pick(flat, 0.0).value() < 10
        assert session.pick(flat, 0.9999).value() > 1270

    def test_runs_to_the_end_of_the_context(self, engine: ReferenceEngine) -> None:
        session = engine.open_session(12)
        session.sync(TOKENS[:11])
        session.submit(3)
        assert session.position == session.context == 12
        with pytest.raises(ContextFullError):
            session.submit(3)
        assert session.position == 12

    def test_refuses_a_token_outside_the_vocabulary(self, session: ReferenceSession) -> None:
        session.sync(TOKENS[:3])
        for token in (-1, 1280):
            with pytest.raises(ValueError, match="outside the vocabulary"):
                session.submit(token)
        assert session.position == 3

    def test_the_logits_are_a_copy(self, session: ReferenceSession) -> None:
        session.sync(TOKENS[:3])
        session.logits()[:] = 0
        assert session.logits().any()


class TestInvalid:
    def test_every_use_of_an_empty_session_says_so(self, session: ReferenceSession) -> None:
        uses: list[Callable[[], object]] = [
            session.logits,
            session.mark,
            session.snapshot,
            session.payload_bytes,
            lambda: session.submit(1),
            lambda: session.pick(GREEDY),
        ]
        for use in uses:
            with pytest.raises(SessionInvalid, match="sync a full prompt first"):
                use()
        assert session.tokens == []

    def test_a_failure_inside_the_model_ends_the_timeline(
        self, session: ReferenceSession, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        session.sync(TOKENS[:20])
        with monkeypatch.context() as patch:
            patch.setattr(Reference, "shared_expert", lambda *_: 1 / 0)
            with pytest.raises(EngineFault, match="division by zero"):
                session.submit(1)
        assert session.position == 0
        assert session.sync(TOKENS[:20]) == (0, 20)

    def test_an_interrupt_leaves_the_completed_steps(
        self, session: ReferenceSession, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        session.sync(TOKENS[:20])
        before = session.snapshot()

        def interrupt(*_: object) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(Reference, "shared_expert", interrupt)
            with pytest.raises(KeyboardInterrupt):
                session.submit(1)
        assert session.snapshot() == before


class TestEngine:
    def test_describes_the_model(self, engine: ReferenceEngine) -> None:
        assert (engine.backend, engine.model_id, engine.quant_bits) == ("reference", 0, 2)
        assert engine.shape.layer_count == 6
        assert any("test shape" in note for note in engine.notes)
        plan = engine.memory_plan(2048)
        assert plan.compressed == 2 * 514 * (256 + 128) * 4 + 2 * 18 * 256 * 4
        with pytest.raises(ValueError, match="at least one token"):
            engine.open_session(0)

    def test_power_rests_after_every_layer_of_a_prefill(self, engine: ReferenceEngine) -> None:
        rested: list[str] = []

        class Recorder(PowerGovernor):
            def rest(self, unit: str, started: float, interrupted: Callable[[], bool] | None = None) -> None:
                rested.append(unit)

        session = ReferenceSession(engine._reference, Recorder(50), 64, 64)
        session.sync(TOKENS[:3])
        session.submit(1)
        assert rested == [f"prefill layer {layer}" for layer in range(6)]

    def test_sessions_do_not_share_state(self, engine: ReferenceEngine) -> None:
        first, second = sync(engine, TOKENS[:30]), sync(engine, TOKENS[40:90])
        expected = sync(engine, TOKENS[:50]).snapshot()
        for token in TOKENS[30:50]:
            first.submit(token)
            second.submit(token)
        gc.collect()
        assert first.tokens == TOKENS[:50]
        assert len(first.snapshot()) == len(expected)
