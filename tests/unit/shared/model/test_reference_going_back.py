"""Undo, marks, payloads: going back on the reference engine leaves no trace."""

from __future__ import annotations

import io
from collections.abc import Callable

import numpy as np
import pytest

from shared.errors import PayloadError, SessionInvalid
from shared.kv.payload import HEADER_WORDS, mark_size
from shared.model.reference_engine import ReferenceEngine
from shared.model.reference_session import ReferenceSession
from shared.sampling import GREEDY, Sampling
from tests.support.lookahead_contract import check_look_ahead
from tests.support.reference_sessions import TOKENS, sync


class TestUndo:
    @pytest.mark.parametrize("length", [1, 2, 3, 4, 7, 126, 127, 128, 130, 131])
    def test_is_bit_exact(self, length: int, session: ReferenceSession) -> None:
        session.sync(TOKENS[:length])
        before, logits = session.snapshot(), session.logits()
        session.submit(9)
        session.undo()
        assert session.snapshot() == before
        np.testing.assert_array_equal(session.logits(), logits)

    def test_what_follows_does_not_depend_on_it(self, session: ReferenceSession) -> None:
        session.sync(TOKENS[:126])
        plain = session.snapshot()
        for token in TOKENS[126:136]:
            session.submit(token)
        expected = session.snapshot()
        session.restore(plain)
        for token in TOKENS[126:136]:
            session.submit(1279 - token)
            session.undo()
            session.submit(token)
        assert session.snapshot() == expected

    def test_works_once_and_only_right_after_a_submit(self, session: ReferenceSession) -> None:
        session.sync(TOKENS[:5])
        with pytest.raises(SessionInvalid, match="no submitted token"):
            session.undo()
        session.submit(1)
        session.undo()
        with pytest.raises(SessionInvalid, match="no submitted token"):
            session.undo()
        session.submit(1)
        session.sync([*TOKENS[:5], 1, 2, 3])
        with pytest.raises(SessionInvalid, match="no submitted token"):
            session.undo()


@pytest.mark.parametrize("sampling", [GREEDY, Sampling(1.0)])
@pytest.mark.parametrize("position", [2, 125])
def test_look_ahead_contract(position: int, sampling: Sampling, engine: ReferenceEngine) -> None:
    """Answers that cross the ends of windows of 4 and of 128 tokens."""
    snapshot = sync(engine, TOKENS[:position]).snapshot()

    def open_at_prompt() -> ReferenceSession:
        session = engine.open_session(512)
        session.restore(snapshot)
        return session

    check_look_ahead(open_at_prompt, engine.tokenizer, TOKENS[:position], length=5, sampling=sampling)


class TestMarks:
    @pytest.mark.parametrize("length", [1, 5, 127, 130])
    def test_rewind_is_bit_exact_and_repeatable(self, length: int, session: ReferenceSession) -> None:
        session.sync(TOKENS[:length])
        before, mark = session.snapshot(), session.mark()
        assert mark.position == length
        for _ in range(2):
            session.sync([*TOKENS[:length], *TOKENS[5:100]])
            session.submit(4)
            session.rewind(mark)
            assert session.snapshot() == before

    def test_a_mark_tells_what_it_holds(self, session: ReferenceSession, engine: ReferenceEngine) -> None:
        shape, length = engine.shape, engine.shape.window
        session.sync(TOKENS[:length])
        rows = [4 * (length // ratio) * shape.head_dim for ratio in shape.compress_ratios if ratio]
        rows += [4 * (length // 4) * shape.index_dim for ratio in shape.compress_ratios if ratio == 4]
        ids_and_counts = 4 * (HEADER_WORDS + length) + 8 * shape.layer_count
        # Of a payload with a full window all but the compressed rows is what later steps overwrite.
        assert session.mark().nbytes == session.payload_bytes() - ids_and_counts - sum(rows)
        assert session.mark().nbytes == mark_size(shape, session.context)

    def test_a_later_mark_is_stale_after_going_behind_it(self, session: ReferenceSession) -> None:
        session.sync(TOKENS[:10])
        early = session.mark()
        session.submit(1)
        late = session.mark()
        session.undo()
        with pytest.raises(SessionInvalid):
            session.rewind(late)
        session.submit(2)
        session.rewind(early)
        assert session.tokens == TOKENS[:10]

    def test_no_mark_outlives_its_timeline(self, session: ReferenceSession, engine: ReferenceEngine) -> None:
        changes: list[Callable[[], object]] = [
            session.invalidate,
            lambda: session.sync(TOKENS[3:20]),
            lambda: session.restore(sync(engine, TOKENS[:10]).snapshot()),
        ]
        for change in changes:
            session.sync(TOKENS[:10])
            mark = session.mark()
            change()
            with pytest.raises(SessionInvalid):
                session.rewind(mark)

    def test_a_mark_of_another_session_is_refused(
        self, session: ReferenceSession, engine: ReferenceEngine
    ) -> None:
        session.sync(TOKENS[:10])
        with pytest.raises(SessionInvalid):
            session.rewind(sync(engine, TOKENS[:10]).mark())

    def test_a_rewound_timeline_continues_as_a_fresh_one(
        self, session: ReferenceSession, engine: ReferenceEngine
    ) -> None:
        """Going back changes caches and compressor state, not only the token list."""
        session.sync(TOKENS[:64])
        mark = session.mark()
        session.sync(TOKENS[:140])
        session.rewind(mark)
        session.sync([*TOKENS[:64], *TOKENS[200:270]])
        assert session.snapshot() == sync(engine, [*TOKENS[:64], *TOKENS[200:270]]).snapshot()


class TestPayload:
    @pytest.mark.parametrize("length", [1, 4, 6, 127, 128, 129, 262])
    def test_a_restored_session_continues_bit_for_bit(
        self, length: int, session: ReferenceSession, engine: ReferenceEngine
    ) -> None:
        session.sync(TOKENS[:length])
        content = session.snapshot()
        assert len(content) == session.payload_bytes()
        other = engine.open_session(1024)
        other.restore(content)
        np.testing.assert_array_equal(other.logits(), session.logits())
        for token in TOKENS[length : length + 6]:
            session.submit(token)
            other.submit(token)
        np.testing.assert_array_equal(other.logits(), session.logits())
        again = engine.open_session(512)
        again.restore(session.snapshot())
        assert again.snapshot() == session.snapshot()

    def test_float32_rows_of_other_writers_are_rounded(
        self, session: ReferenceSession, engine: ReferenceEngine
    ) -> None:
        session.sync(TOKENS[:130])
        state = session._state.layers[2]
        state.compressed[:32] *= np.float32(1.0001)
        other = engine.open_session(512)
        other.restore(session.snapshot())
        rows = other._state.layers[2].compressed[:32]
        np.testing.assert_array_equal(rows, rows.astype(np.float16))

    def test_a_failed_load_leaves_the_session_invalid(self, session: ReferenceSession) -> None:
        session.sync(TOKENS[:20])
        content = session.snapshot()
        with pytest.raises(PayloadError):
            session.load(io.BytesIO(content[:-1]), len(content))
        assert session.position == 0
        with pytest.raises(SessionInvalid):
            session.snapshot()
        session.load(io.BytesIO(content), len(content))
        assert session.tokens == TOKENS[:20]

    def test_a_smaller_context_refuses(self, session: ReferenceSession, engine: ReferenceEngine) -> None:
        session.sync(TOKENS[:20])
        with pytest.raises(PayloadError, match="--ctx"):
            engine.open_session(511).restore(session.snapshot())
