"""Which type each tensor gets: the published recipes, layers that stay at four bits, and single choices.

Only the routed experts have a choice; whatever else a model file holds has one type. Spec: model §8.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shared.errors import UsageError
from shared.gguf.types import TensorType
from shared.model.shape import ModelShape
from shared.model.tensors import EXPERT_TYPES, TensorSpec, tensor_table

# Types of gate and up, and of down.
_Q2 = (TensorType.IQ2_XXS, TensorType.Q2_K)
_Q4 = (TensorType.Q4_K, TensorType.Q4_K)
_RECIPES = {"q2": _Q2, "q4": _Q4, "q2-q4": _Q2, "mxfp4": (TensorType.MXFP4, TensorType.MXFP4)}
RECIPE_NAMES = tuple(_RECIPES)
MIXED = "q2-q4"
LAST_LAYERS = 6  # that q2-q4 keeps at four bits: 37 to 42 of Flash


@dataclass(frozen=True, slots=True)
class Recipe:
    """A recipe's name, the layers that q2-q4 keeps at four bits (None: the last six), and types for tensors
    by name or by the beginning of it, a later one winning. Raises UsageError for a name that is not known and
    for layers where the recipe has none to choose, which is known before any checkpoint is read."""

    name: str
    four_bit_layers: frozenset[int] | None = None
    overrides: tuple[tuple[str, TensorType], ...] = ()

    def __post_init__(self) -> None:
        if self.name not in _RECIPES:
            raise UsageError(f"no recipe {self.name!r}: there are {', '.join(RECIPE_NAMES)}")
        if self.four_bit_layers is not None and self.name != MIXED:
            raise UsageError(f"only the recipe {MIXED} has layers to choose")


def chosen_types(recipe: Recipe, shape: ModelShape) -> dict[str, TensorType]:
    """The type of every tensor that a model of this shape can have.

    Raises UsageError for a layer or an override that is not possible.
    """
    four_bit = _four_bit_layers(recipe, shape)
    table = tensor_table(shape)
    types = {spec.name: _recipe_type(recipe.name, spec, four_bit) for spec in table}
    for prefix, type in recipe.overrides:
        _override(types, table, prefix, type)
    for layer in range(shape.layer_count):
        _check_experts(types, layer)
    return types


def parse_layers(text: str) -> frozenset[int]:
    """Layers from `3,7-9`. Raises UsageError for anything else."""
    layers: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not (first.isdecimal() and (last.isdecimal() if dash else True) and len(part) < 20):
            raise UsageError(f"{text!r} names no layers: write numbers and ranges, as in 3,7-9")
        start, stop = int(first), int(last) if dash else int(first)
        if stop < start or stop > 1000:
            raise UsageError(f"{part.strip()!r} is no range of layers")
        layers.update(range(start, stop + 1))
    return frozenset(layers)


def parse_override(text: str) -> tuple[str, TensorType]:
    """A name or prefix and a type from `PREFIX=TYPE`; case and `-` or `_` in types do not matter."""
    prefix, equals, word = text.partition("=")
    wanted = word.strip().lower().replace("-", "").replace("_", "")
    for type in TensorType:
        known = type is not TensorType.UNKNOWN and type.name.lower().replace("_", "") == wanted
        if known and equals and prefix.strip():
            return prefix.strip(), type
    raise UsageError(f"{text!r} is not PREFIX=TYPE: an example is blk.3.ffn_down_exps=q4_k")


def _four_bit_layers(recipe: Recipe, shape: ModelShape) -> frozenset[int]:
    if recipe.name != MIXED:
        return frozenset()
    if recipe.four_bit_layers is None:
        return frozenset(range(max(0, shape.layer_count - LAST_LAYERS), shape.layer_count))
    beyond = [layer for layer in sorted(recipe.four_bit_layers) if layer >= shape.layer_count]
    if beyond:
        raise UsageError(f"there is no layer {beyond[0]}: the model has layers 0 to {shape.layer_count - 1}")
    return recipe.four_bit_layers


def _recipe_type(name: str, spec: TensorSpec, four_bit: frozenset[int]) -> TensorType:
    if spec.types != EXPERT_TYPES:
        return spec.types[0]
    pair = _Q4 if int(spec.name.split(".")[1]) in four_bit else _RECIPES[name]
    return pair["_down_" in spec.name]


def _override(
    types: dict[str, TensorType], table: Sequence[TensorSpec], prefix: str, type: TensorType
) -> None:
    matching = [spec for spec in table if spec.name.startswith(prefix)]
    if not matching:
        raise UsageError(f"no tensor has a name that begins with {prefix!r}")
    for spec in matching:
        if type not in spec.types:
            possible = ", ".join(allowed.name for allowed in spec.types)
            raise UsageError(f"{spec.name} cannot be {type.name}: engines read it as {possible}")
        types[spec.name] = type


def _check_experts(types: dict[str, TensorType], layer: int) -> None:
    gate, up, down = (types[f"blk.{layer}.ffn_{part}_exps.weight"] for part in ("gate", "up", "down"))
    if gate is not up:
        raise UsageError(f"layer {layer} would have gate {gate.name} and up {up.name}: they must be equal")
    if (gate is TensorType.MXFP4) != (down is TensorType.MXFP4):
        raise UsageError(f"layer {layer} would have MXFP4 only in part: gate, up and down must all be MXFP4")
