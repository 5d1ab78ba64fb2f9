"""Single stages on constructed inputs: what no golden prompt decides."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from shared.model.reference import STAGES, Reference
from shared.model.reference_math import attention, hyper_connection_weights, pool, sigmoid, softplus, swiglu
from shared.model.reference_state import empty_frontier
from shared.model.rope import rope_tables
from tests.support.constructed import ConstructedWeights
from tests.support.shapes import toy_shape

Array = npt.NDArray[np.float32]

RNG = np.random.default_rng(11)


def normal(*size: int) -> Array:
    return RNG.standard_normal(size, dtype=np.float32)


def reference(weights: ConstructedWeights, **changes: Any) -> Reference:
    return Reference(weights, toy_shape(**changes), "float")  # type: ignore[arg-type]


def test_stages_are_methods_in_the_order_of_the_pass() -> None:
    methods = [name for name in vars(Reference) if name in STAGES]
    assert tuple(methods) == STAGES


class TestIndexSelect:
    heads, top_k = 4, 16

    def select(self, hidden: Array, latent: Array, rows: Array, start: int, proj: Array, query: Array) -> Any:
        weights = ConstructedWeights(tensors={"indexer.attn_q_b.weight": query, "indexer.proj.weight": proj})
        model = reference(weights, index_heads=self.heads, index_dim=128, index_top_k=self.top_k)
        rope = rope_tables(model.shape, 4, np.arange(start, start + len(hidden)))
        position = np.arange(start, start + len(hidden))[:, None]
        visible = np.arange(len(rows)) < (position + 1) // 4
        queries = (latent @ query.T).reshape(len(hidden), self.heads, 128)
        return model.index_select(2, hidden, latent, rows, visible, rope), visible, queries

    def test_takes_exactly_the_top_scores_between_top_k_and_a_thousand_rows(self) -> None:
        rows, proj = normal(200, 128), normal(self.heads, 8)
        hidden, latent, query = normal(3, 8), normal(3, 8), normal(self.heads * 128, 8)
        start = 797  # visible: 199, 199, 200
        chosen, visible, queries = self.select(hidden, latent, rows, start, proj, query)
        cosines, sines = rope_tables(toy_shape(), 4, np.arange(start, start + 3))
        for token in range(3):
            turned = queries[token].astype(np.float64)
            even, odd = turned[:, 64::2].copy(), turned[:, 65::2].copy()
            turned[:, 64::2] = even * cosines[token] - odd * sines[token]
            turned[:, 65::2] = even * sines[token] + odd * cosines[token]
            match = np.maximum(turned @ rows.astype(np.float64).T, 0)
            scores = (proj.astype(np.float64) @ hidden[token]) @ match
            scores[~visible[token]] = -np.inf
            expected = sorted(range(200), key=lambda row: (-scores[row], row))[: self.top_k]
            assert np.flatnonzero(chosen[token]).tolist() == sorted(expected)

    def test_equal_scores_at_the_cut_take_the_lower_row(self) -> None:
        rows = np.zeros((40, 128), np.float32)
        rows[:, :64] = RNG.integers(1, 4, 64)  # the rotated half stays out of it
        rows[[39, 20, 31]] *= 2
        query = RNG.integers(1, 3, (self.heads * 128, 8)).astype(np.float32)
        share = normal(1, 8)
        proj = np.tile(share, (self.heads, 1))
        chosen, _, _ = self.select(share, np.ones((1, 8), np.float32), rows, 159, proj, query)
        assert np.flatnonzero(chosen[0]).tolist() == [*range(13), 20, 31, 39]

    def test_rows_that_match_no_head_tie_at_zero(self) -> None:
        rows = np.zeros((40, 128), np.float32)
        chosen, _, _ = self.select(normal(1, 8), normal(1, 8), rows, 159, normal(4, 8), normal(512, 8))
        assert np.flatnonzero(chosen[0]).tolist() == list(range(16))

    def test_a_query_with_fewer_visible_rows_sees_them_all_and_no_more(self) -> None:
        """Within a chunk that has more rows after it than top_k, the first queries see fewer."""
        rows = normal(20, 128)
        chosen, visible, _ = self.select(normal(60, 8), normal(60, 8), rows, 20, normal(4, 8), normal(512, 8))
        counts = np.minimum(visible.sum(axis=1), self.top_k)
        np.testing.assert_array_equal(chosen.sum(axis=1), counts)
        assert not (chosen & ~visible).any()

    def test_nothing_is_scored_up_to_top_k_rows(self) -> None:
        model = reference(ConstructedWeights(), index_top_k=16)
        visible = np.ones((2, 16), np.bool_)
        rope = rope_tables(model.shape, 4, [63, 64])
        assert model.index_select(2, normal(2, 8), normal(2, 8), normal(16, 128), visible, rope) is visible

    @pytest.mark.parametrize(("dense", "seen"), [(0, 16), (39, 16), (40, 40)])
    def test_a_single_token_may_see_all_rows_up_to_a_limit(self, dense: int, seen: int) -> None:
        assert self.chosen(dense, tokens=1) == seen

    def test_that_limit_is_not_for_chunks(self) -> None:
        assert self.chosen(1024, tokens=2) == 16

    def chosen(self, dense: int, tokens: int) -> int:
        """Rows that the last of some tokens sees of 40 visible ones."""
        tensors = {"indexer.attn_q_b.weight": normal(4 * 128, 8), "indexer.proj.weight": normal(4, 8)}
        shape = toy_shape(index_heads=4, index_dim=128, index_top_k=16)
        model = Reference(ConstructedWeights(tensors=tensors), shape, "float", dense)  # type: ignore[arg-type]
        rope = rope_tables(shape, 4, np.arange(160, 160 + tokens))
        hidden, latent, rows = normal(tokens, 8), normal(tokens, 8), normal(40, 128)
        found = model.index_select(2, hidden, latent, rows, np.ones((tokens, 40), np.bool_), rope)
        return int(found[-1].sum())


class TestRoute:
    def route(self, router: Array, hidden: Array, bias: Array | None = None, **changes: Any) -> Any:
        weights = ConstructedWeights(tensors={"ffn_gate_inp.weight": router}, bias=bias)
        model = reference(weights, expert_count=len(router), experts_used=3, hash_layers=0, **changes)
        return model.route(5, hidden, np.zeros(len(hidden), np.int64))

    def test_equal_experts_at_the_cut_take_the_lower_id(self) -> None:
        router = np.zeros((8, 4), np.float32)
        router[6] = 1.0
        chosen, shares = self.route(router, np.ones((1, 4), np.float32), np.zeros(8, np.float32))
        assert chosen.tolist() == [[6, 0, 1]]
        np.testing.assert_allclose(shares.sum(), 1.5, rtol=1e-6)

    def test_the_bias_chooses_but_does_not_weigh(self) -> None:
        router, hidden = normal(8, 4), normal(1, 4)
        bias = np.zeros(8, np.float32)
        bias[[1, 4, 7]] = [100, 300, 200]
        chosen, shares = self.route(router, hidden, bias)
        assert chosen.tolist() == [[4, 7, 1]]
        affinity = np.sqrt(np.log1p(np.exp((router @ hidden[0]).astype(np.float64))))[[4, 7, 1]]
        np.testing.assert_allclose(shares[0], 1.5 * affinity / affinity.sum(), rtol=1e-5)

    def test_the_weight_sum_has_a_floor(self) -> None:
        router = np.full((8, 4), -10.0, np.float32)
        _, shares = self.route(router, np.ones((1, 4), np.float32), np.zeros(8, np.float32))
        affinity = np.sqrt(np.exp(-40.0))
        assert 3 * affinity < 2**-14
        np.testing.assert_allclose(shares[0], 1.5 * affinity / 2**-14, rtol=1e-5)

    def test_a_hash_layer_takes_the_token_s_row_and_computes_its_weights(self) -> None:
        table = np.array([[0, 1, 2], [5, 5, 3]])
        router, hidden = normal(8, 4), normal(2, 4)
        weights = ConstructedWeights(tensors={"ffn_gate_inp.weight": router}, table=table)
        model = reference(weights, expert_count=8, experts_used=3, hash_layers=3)
        chosen, shares = model.route(2, hidden, np.array([1, 0]))
        assert chosen.tolist() == [[5, 5, 3], [0, 1, 2]]
        affinity = np.sqrt(np.log1p(np.exp((router @ hidden[0]).astype(np.float64))))[[5, 5, 3]]
        np.testing.assert_allclose(shares[0], 1.5 * affinity / affinity.sum(), rtol=1e-5)


class TestExperts:
    def test_a_repeated_id_counts_once_per_slot(self) -> None:
        experts = {(part, e): normal(8, 8) for part in ("gate", "up", "down") for e in range(4)}
        model = reference(ConstructedWeights(experts=experts), experts_used=3)
        hidden = normal(2, 8)
        shares = np.array([[0.5, 0.25, 1.0], [0.1, 0.2, 0.3]], np.float32)
        chosen = np.array([[2, 2, 0], [1, 2, 1]])
        found = model.experts(0, hidden, chosen, shares)
        for token in range(2):
            expected = np.zeros(8)
            for expert, share in zip(chosen[token], shares[token], strict=True):
                gate, up, down = (experts[part, int(expert)] for part in ("gate", "up", "down"))
                inner = swiglu(gate @ hidden[token], up @ hidden[token], 10.0) * share
                expected += down @ inner
            np.testing.assert_allclose(found[token], expected, rtol=1e-4, atol=1e-4)

    def test_the_clamp_bounds_the_gate_above_only(self) -> None:
        gate = np.array([-30.0, -12.0, 12.0, 12.0, 1.0], np.float32)
        up = np.array([1.0, 1.0, -50.0, 50.0, 2.0], np.float32)
        silu_ten = 10 / (1 + np.exp(-10.0))
        expected = [-30 / (1 + np.exp(30.0)), -12 / (1 + np.exp(12.0)), -10 * silu_ten, 10 * silu_ten]
        np.testing.assert_allclose(swiglu(gate, up, 10.0)[:4], expected, rtol=1e-5)
        assert swiglu(gate, up, 1e-6)[3] > 500  # no clamping at all below this

    def test_the_shared_expert_is_clamped_too(self) -> None:
        eye = np.eye(4, dtype=np.float32) * 100
        tensors = {f"ffn_{part}_shexp.weight": eye for part in ("gate", "up")}
        tensors["ffn_down_shexp.weight"] = np.eye(4, dtype=np.float32)
        found = reference(ConstructedWeights(tensors=tensors)).shared_expert(0, np.ones((1, 4), np.float32))
        np.testing.assert_allclose(found, 100 / (1 + np.exp(-10.0)), rtol=1e-6)


class TestHyperConnections:
    def weights(self, epsilon: float) -> tuple[Array, Array, Array]:
        mix, base = np.zeros((1, 24), np.float32), np.full(24, -40.0, np.float32)
        return hyper_connection_weights(
            mix, np.ones(3, np.float32), base, streams=4, rounds=20, epsilon=epsilon
        )

    def test_pre_weights_carry_epsilon_and_post_weights_do_not(self) -> None:
        pre, post, _ = self.weights(1e-6)
        np.testing.assert_allclose(pre, 1e-6, rtol=1e-4)
        assert post.max() < 1e-12

    def test_head_weights_carry_epsilon(self) -> None:
        shape = toy_shape(embedding_width=4, vocabulary_size=4)
        tensors = {
            "output_hc_fn.weight": np.zeros((4, 16), np.float32),
            "output_hc_scale.weight": np.ones(1, np.float32),
            "output_hc_base.weight": np.full(4, -40.0, np.float32),
            "output_norm.weight": np.ones(4, np.float32),
            "output.weight": np.eye(4, dtype=np.float32),
        }
        streams = np.full((1, 4, 4), 250.0, np.float32)
        logits = Reference(ConstructedWeights(tensors=tensors), shape, "float").output_head(streams)  # type: ignore[arg-type]
        mixed = 4 * 250.0 * 1e-6  # comparable with sqrt of the norm's own epsilon
        np.testing.assert_allclose(logits, mixed / np.sqrt(mixed**2 + 1e-6), rtol=1e-4)

    def test_the_combine_matrix_ends_on_columns_and_is_applied_transposed(self) -> None:
        _, _, combine = hyper_connection_weights(
            normal(1, 24), np.ones(3, np.float32), normal(24), streams=4, rounds=3, epsilon=1e-6
        )
        columns, rows = combine.sum(axis=1), combine.sum(axis=2)
        np.testing.assert_allclose(columns, 1.0, atol=3e-6)
        assert np.abs(rows - 1).max() > 1e-5
        streams, output, post = normal(1, 4, 8), normal(1, 8), normal(1, 4)
        found = reference(ConstructedWeights()).hyper_connection_post(streams, output, post, combine)
        for stream in range(4):
            mixed = sum(combine[0, row, stream] * streams[0, row] for row in range(4))
            np.testing.assert_allclose(found[0, stream], post[0, stream] * output[0] + mixed, atol=1e-5)


def test_output_groups_follow_the_shape() -> None:
    for groups in (1, 2, 4):
        shape = toy_shape(head_count=4, head_dim=128, output_groups=groups, output_rank=3)
        first, second = normal(groups * 3, 4 // groups * 128), normal(8, groups * 3)
        tensors = {"attn_output_a.weight": first, "attn_output_b.weight": second}
        heads = normal(2, 4, 128)
        model = Reference(ConstructedWeights(tensors=tensors), shape, "float")  # type: ignore[arg-type]
        found = model.attention_output(0, heads, rope_tables(shape, 0, [0, 0]))
        for token in range(2):
            parts = heads[token].reshape(groups, -1)
            low = np.concatenate([first[3 * g : 3 * g + 3] @ parts[g] for g in range(groups)])
            np.testing.assert_allclose(found[token], second @ low, rtol=1e-3, atol=1e-3)


def test_the_sink_takes_weight_without_a_value() -> None:
    rows = np.ones((3, 4), np.float32)
    visible = np.array([[True, True, False]])
    found = attention(np.zeros((1, 1, 4), np.float32), rows, visible, np.array([np.log(2.0)], np.float32))
    np.testing.assert_allclose(found, 0.5, rtol=1e-6)  # two rows and a sink that weighs as much as both


def test_pooling_without_any_scored_candidate_gives_zero() -> None:
    frontier = empty_frontier(4, 8)
    pooled = pool(normal(1, 8, 16), np.stack([frontier.score]))
    assert (pooled == 0).all()
    scores = np.stack([frontier.score])
    scores[0, 5] = -3.0
    values = normal(1, 8, 16)
    np.testing.assert_array_equal(pool(values, scores)[0], values[0, 5])


@pytest.mark.parametrize("value", [-200.0, -30.0, -1.0, 0.0, 19.9, 20.1, 200.0])
def test_softplus_and_sigmoid_are_stable(value: float) -> None:
    x = np.array([value], np.float32)
    np.testing.assert_allclose(softplus(x), np.logaddexp(0, value), rtol=1e-5, atol=1e-30)
    np.testing.assert_allclose(sigmoid(x), np.exp(-np.logaddexp(0, -value)), rtol=1e-5, atol=1e-30)
