"""Types by recipe, by layer and by override, and the combinations that no engine reads."""

from __future__ import annotations

import pytest

from shared.errors import UsageError
from shared.gguf.types import TensorType
from shared.model.known_shapes import FLASH, PRO
from shared.model.tensors import EXPERT_TYPES, tensor_table
from shared.quantise.recipe import Recipe, chosen_types, parse_layers, parse_override
from tests.support.tiny_checkpoints import SHAPE


def experts(types: dict[str, TensorType], layer: int) -> list[str]:
    return [types[f"blk.{layer}.ffn_{part}_exps.weight"].name for part in ("gate", "up", "down")]


Q2, Q4, MXFP4 = ["IQ2_XXS", "IQ2_XXS", "Q2_K"], ["Q4_K"] * 3, ["MXFP4"] * 3


@pytest.mark.parametrize(
    ("name", "shape", "expected"),
    [
        ("q2", FLASH, [Q2] * 43),
        ("q4", FLASH, [Q4] * 43),
        ("mxfp4", FLASH, [MXFP4] * 43),
        ("q2-q4", FLASH, [Q2] * 37 + [Q4] * 6),
        ("q2", PRO, [Q2] * 61),
        ("q2-q4", SHAPE, [Q4] * 3),
    ],
)
def test_recipes(name, shape, expected) -> None:
    types = chosen_types(Recipe(name), shape)
    assert [experts(types, layer) for layer in range(shape.layer_count)] == expected
    table = {spec.name: spec for spec in tensor_table(shape)}
    assert set(types) == set(table)
    assert all(types[name] in spec.types for name, spec in table.items())
    assert {types[name] for name, spec in table.items() if spec.types != EXPERT_TYPES} == {
        TensorType.F32,
        TensorType.F16,
        TensorType.I32,
        TensorType.Q8_0,
    }


def test_layers_and_overrides() -> None:
    types = chosen_types(Recipe("q2-q4", frozenset({1})), SHAPE)
    assert [experts(types, layer) for layer in range(3)] == [Q2, Q4, Q2]
    overrides = (("blk.0.", TensorType.Q4_K), ("blk.0.ffn_down_exps", TensorType.Q2_K))
    with pytest.raises(UsageError, match=r"blk.0.hc_attn_fn.weight cannot be Q4_K: engines read it as F16"):
        chosen_types(Recipe("q2", overrides=overrides), SHAPE)
    overrides = tuple((f"blk.0.ffn_{part}", TensorType.Q4_K) for part in ("gate_exps", "up_exps"))
    types = chosen_types(
        Recipe("q2", overrides=(*overrides, ("blk.2.ffn_down_exps", TensorType.Q4_K))), SHAPE
    )
    assert [experts(types, layer) for layer in range(3)] == [
        ["Q4_K", "Q4_K", "Q2_K"],
        Q2,
        ["IQ2_XXS", "IQ2_XXS", "Q4_K"],
    ]


@pytest.mark.parametrize(
    ("recipe", "reason"),
    [
        (Recipe("q2-q4", frozenset({1, 3})), "no layer 3: the model has layers 0 to 2"),
        (Recipe("q2", overrides=(("blk.9.", TensorType.Q4_K),)), "no tensor has a name that begins"),
        (Recipe("q2", overrides=(("blk.1.ffn_up_exps", TensorType.Q4_K),)), "gate IQ2_XXS and up Q4_K"),
        (Recipe("mxfp4", overrides=(("blk.1.ffn_down_exps", TensorType.Q4_K),)), "MXFP4 only in part"),
    ],
)
def test_refusals(recipe: Recipe, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        chosen_types(recipe, SHAPE)


def test_a_recipe_that_cannot_be_is_refused_without_a_model() -> None:
    with pytest.raises(UsageError, match="no recipe 'q3': there are q2, q4"):
        Recipe("q3")
    with pytest.raises(UsageError, match="only the recipe q2-q4 has layers"):
        Recipe("q4", frozenset({1}))


def test_layer_lists() -> None:
    assert parse_layers("37-42") == set(range(37, 43))
    assert parse_layers("1, 3-4,9") == {1, 3, 4, 9}
    for text in ("", "a", "1-", "-2", "4-3", "1,,2", "0-999999999", "1.5", "²"):
        with pytest.raises(UsageError):
            parse_layers(text)


def test_override_texts() -> None:
    assert parse_override("blk.3.ffn_down_exps=q4_k") == ("blk.3.ffn_down_exps", TensorType.Q4_K)
    for word in ("IQ2_XXS", "iq2-xxs", "iq2xxs"):
        assert parse_override(f"blk.={word}")[1] is TensorType.IQ2_XXS
    for text in ("blk.3", "=q4_k", "blk.3=q99", "blk.3=", "blk.3=unknown"):
        with pytest.raises(UsageError, match="is not PREFIX=TYPE"):
            parse_override(text)
