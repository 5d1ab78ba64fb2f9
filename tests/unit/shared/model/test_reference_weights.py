from __future__ import annotations

import numpy as np

from shared.model.open import open_model
from shared.model.reference_weights import ReferenceWeights
from shared.quant.dequantise import dequantise
from tests.support.golden import tiny_q2, tiny_q4


def test_an_expert_is_its_part_of_the_tensor() -> None:
    for path in (tiny_q2(), tiny_q4()):
        with open_model(path) as model:
            weights = ReferenceWeights(model.gguf, model.shape)
            info = model.gguf.tensors["blk.4.ffn_down_exps.weight"]
            whole = dequantise(info.type, model.gguf.data(info.name), info.dims[::-1])
            for expert in (0, 7):
                np.testing.assert_array_equal(weights.expert(4, "down", expert), whole[expert])


def test_the_cache_stays_within_its_budget() -> None:
    with open_model(tiny_q2()) as model:
        weights = ReferenceWeights(model.gguf, model.shape, cache_bytes=3 * 256 * 256 * 4)
        first = weights.expert(0, "gate", 0)
        assert weights.expert(0, "gate", 0) is first
        weights.expert(0, "gate", 1)
        weights.expert(0, "gate", 0)  # used again, so that expert 1 is the oldest
        for expert in (2, 3):
            weights.expert(0, "gate", expert)
        kept = sum(value.nbytes for value in weights._cache.values())
        assert kept <= 3 * 256 * 256 * 4
        assert weights.expert(0, "gate", 0) is first


def test_a_missing_router_bias_is_zero() -> None:
    with open_model(tiny_q2()) as model:
        weights = ReferenceWeights(model.gguf, model.shape)
        assert weights.router_bias(5).any()
        assert not weights.router_bias(0).any()
