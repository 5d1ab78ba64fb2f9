"""From a file's metadata to a `ModelShape`: every key present, of its type, and the whole a known shape.

Flash, PRO and Flash-4-expert are matched as a whole; any other file must be an admissible test shape. Knows
the metadata only: whether the tensors fit the shape is `tensors`' business.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import numpy as np

from shared.gguf.mapping import shown
from shared.gguf.reader import GgufFile
from shared.gguf.types import ValueType
from shared.model.admissible import MOST_LAYERS, WIDEST_EMBEDDING, admissible_faults, imitates_pro
from shared.model.known_shapes import (
    FLASH,
    FLOAT_KEYS,
    INTEGER_KEYS,
    KNOWN_SHAPES,
    PREFIX,
    PRO,
    VARIANT_NAMES,
)
from shared.model.shape import ModelShape

ARCHITECTURE = "deepseek4"

_FLOAT_TYPES = (ValueType.FLOAT32, ValueType.FLOAT64, ValueType.UINT32, ValueType.INT32)


def read_shape(gguf: GgufFile, problems: list[str]) -> ModelShape | None:
    """The shape that the metadata describe (spec: model §1.3); every fault is added to `problems`.

    None when no shape can be told: another architecture, missing numbers, or an unsupported combination.
    """
    if not _check_architecture(gguf, problems):
        return None
    return _ShapeReader(gguf, problems).read()


def _check_architecture(gguf: GgufFile, problems: list[str]) -> bool:
    architecture = gguf.metadata.get("general.architecture")
    if architecture == ARCHITECTURE:
        return True
    if isinstance(architecture, str):
        problems.append(
            f"its architecture is {shown(architecture)}: only DeepSeek V4 ('{ARCHITECTURE}') can be run"
        )
        return False
    problems.append("the required key 'general.architecture' is missing or not a string")
    return any(key.startswith(PREFIX) for key in gguf.metadata)


class _ShapeReader:
    def __init__(self, gguf: GgufFile, problems: list[str]) -> None:
        self._gguf = gguf
        self._problems = problems

    def read(self) -> ModelShape | None:
        numbers = self._integers()
        shape = None if numbers is None else self._match(numbers)
        self._check_floats(shape)
        self._check_fixed()
        if shape is not None:
            self._check_clamp(shape)
        return shape

    def _typed(self, key: str, types: Collection[ValueType], optional: bool = False) -> object | None:
        """The value of a key that must have one of these types; None, with the fault noted, otherwise."""
        name = PREFIX + key
        if name not in self._gguf.metadata:
            if not optional:
                self._problems.append(f"the required key '{name}' is missing")
            return None
        found = self._gguf.metadata_type(name)
        if found not in types:
            wanted = " or ".join(type.name for type in types)
            self._problems.append(f"the key '{name}' is {found.name}, expected {wanted}")
            return None
        return self._gguf.metadata[name]

    def _array(self, key: str, elements: Collection[ValueType]) -> list[float] | None:
        values = self._typed(key, [ValueType.ARRAY])
        if values is None:
            return None
        found = self._gguf.element_type(PREFIX + key)
        if found not in elements or not isinstance(values, np.ndarray):
            wanted = " or ".join(type.name for type in elements)
            held = "nothing" if found is None else found.name
            self._problems.append(f"the key '{PREFIX}{key}' is an array of {held}, expected {wanted}")
            return None
        return [number.item() for number in values[:MOST_LAYERS]]

    def _integers(self) -> dict[str, int] | None:
        """All 22 numbers by key, or None when one is missing or of the wrong type."""
        numbers: dict[str, int] = {}
        for entry in INTEGER_KEYS:
            value = self._typed(entry.key, [ValueType.UINT32])
            if isinstance(value, int):
                numbers[entry.key] = value
        return numbers if len(numbers) == len(INTEGER_KEYS) else None

    def _match(self, numbers: dict[str, int]) -> ModelShape | None:
        ratios = self._ratios(numbers["block_count"])
        for known in KNOWN_SHAPES:
            if not _differences(numbers, known):
                self._check_ratios(ratios, known)
                return known
        if numbers["embedding_length"] > WIDEST_EMBEDDING:
            self._problems.append(_unsupported(numbers))
            return None
        return self._test_shape(numbers, ratios)

    def _ratios(self, layers: int) -> tuple[int, ...] | None:
        """The first `layers` entries of the ratio list; None when there are too few."""
        values = self._array("attention.compress_ratios", [ValueType.INT32, ValueType.UINT32])
        if values is None:
            return None
        if len(values) < layers:
            self._problems.append(
                f"the key '{PREFIX}attention.compress_ratios' has {len(values)} entries for {layers} layers"
            )
            return None
        return tuple(int(value) for value in values[:layers])

    def _check_ratios(self, ratios: tuple[int, ...] | None, known: ModelShape) -> None:
        if ratios is None or ratios == known.compress_ratios:
            return
        wrong = [
            f"layer {layer} has {got} instead of {want}"
            for layer, (got, want) in enumerate(zip(ratios, known.compress_ratios, strict=True))
            if got != want
        ]
        more = f" and {len(wrong) - 3} more" if len(wrong) > 3 else ""
        self._problems.append(
            f"the key '{PREFIX}attention.compress_ratios' is not that of {VARIANT_NAMES[known.variant]}: "
            f"{', '.join(wrong[:3])}{more}"
        )

    def _test_shape(self, numbers: dict[str, int], ratios: tuple[int, ...] | None) -> ModelShape | None:
        if ratios is None:
            return None
        faults = admissible_faults(numbers, ratios)
        if faults:
            self._problems.append(f"unsupported shape: not a published one, and as a test shape {faults[0]}")
            self._problems.extend(f"unsupported test shape: {fault}" for fault in faults[1:])
            return None
        fields = {entry.field: numbers[entry.key] for entry in INTEGER_KEYS if entry.field is not None}
        scale = self._gguf.metadata.get(f"{PREFIX}expert_weights_scale")
        pro_scale = isinstance(scale, (int, float)) and _close(scale, PRO.expert_weight_scale)
        base = PRO if pro_scale else FLASH
        model_id = PRO.model_id if imitates_pro(ratios, pro_scale) else FLASH.model_id
        return replace(
            base,
            variant="test",
            model_id=model_id,
            compress_ratios=ratios,
            **fields,
        )

    def _check_floats(self, shape: ModelShape | None) -> None:
        """Without a shape, a number may be that of any published one."""
        for entry in FLOAT_KEYS:
            value = self._typed(entry.key, _FLOAT_TYPES, entry.optional)
            if not isinstance(value, (int, float)):
                continue
            candidates = KNOWN_SHAPES if shape is None else (shape,)
            wanted = sorted({float(getattr(candidate, entry.field)) for candidate in candidates})
            if not any(_close(value, want) for want in wanted):
                expected = " or ".join(f"{want:g}" for want in wanted)
                self._problems.append(f"the key '{PREFIX}{entry.key}' is {value:g}, expected {expected}")

    def _check_fixed(self) -> None:
        """The keys that have one value in every shape."""
        context = self._typed(
            "rope.scaling.original_context_length", [ValueType.UINT64, ValueType.UINT32], optional=True
        )
        if context is not None and context != FLASH.rope_original_context:
            self._problems.append(
                f"the key '{PREFIX}rope.scaling.original_context_length' is {context}, "
                f"expected {FLASH.rope_original_context}"
            )
        for key in ("expert_group_count", "expert_group_used_count"):
            groups = self._typed(key, [ValueType.UINT32], optional=True)
            if groups:
                self._problems.append(f"the key '{PREFIX}{key}' is {groups}, expected 0: no expert groups")
        if self._typed("expert_weights_norm", [ValueType.BOOL]) is False:
            self._problems.append(f"the key '{PREFIX}expert_weights_norm' is false, expected true")

    def _check_clamp(self, shape: ModelShape) -> None:
        key = f"{PREFIX}swiglu_clamp_exp"
        values = self._array("swiglu_clamp_exp", [ValueType.FLOAT32, ValueType.FLOAT64])
        if values is None:
            return
        if len(values) < shape.layer_count:
            self._problems.append(f"the key '{key}' has {len(values)} entries for {shape.layer_count} layers")
        for layer, value in enumerate(values[: shape.layer_count]):
            if not _close(value, shape.swiglu_clamp):
                self._problems.append(
                    f"the key '{key}' is {value:g} for layer {layer}, expected {shape.swiglu_clamp:g}"
                )


def _close(got: float, want: float) -> bool:
    """Equal as far as a float32 round trip goes. False for NaN."""
    return abs(got - want) <= 1e-6 * max(1.0, abs(want))


def _differences(numbers: dict[str, int], shape: ModelShape) -> list[str]:
    """The keys whose numbers are not those of `shape`, as `key is N, expected M`."""
    return [
        f"{entry.key} is {numbers[entry.key]}, expected {entry.of(shape)}"
        for entry in INTEGER_KEYS
        if numbers[entry.key] != entry.of(shape)
    ]


def _unsupported(numbers: dict[str, int]) -> str:
    nearest = min(KNOWN_SHAPES, key=lambda shape: len(_differences(numbers, shape)))
    return (
        f"unsupported shape: it is nearest to {VARIANT_NAMES[nearest.variant]}, but "
        f"{'; '.join(_differences(numbers, nearest))}"
    )
