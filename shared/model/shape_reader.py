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


def check_architecture(gguf: GgufFile, problems: list[str]) -> bool:
    """Whether it makes sense to look for a V4 model in this file; a fault is added to `problems`."""
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


def read_shape(gguf: GgufFile, problems: list[str]) -> ModelShape | None:
    """The shape that the metadata describe (spec: model §1.3); every fault is added to `problems`.

    None when no shape can be told: missing numbers, or an unsupported combination.
    """
    return _ShapeReader(gguf, problems).read()


class _ShapeReader:
    def __init__(self, gguf: GgufFile, problems: list[str]) -> None:
        self._gguf = gguf
        self._problems = problems

    def read(self) -> ModelShape | None:
        numbers = self._integers()
        layers = numbers.get("block_count")
        ratios = self._ratios(layers)
        shape = self._match(numbers, ratios)
        self._check_floats(shape)
        self._check_fixed()
        self._check_clamp(layers)
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

    def _per_layer(self, key: str, elements: Collection[ValueType], layers: int | None) -> list[float] | None:
        """The first `layers` entries of an array; None, with the fault noted, when they are not there."""
        name = PREFIX + key
        values = self._typed(key, [ValueType.ARRAY])
        if values is None:
            return None
        found = self._gguf.element_type(name)
        if found not in elements or not isinstance(values, np.ndarray):
            wanted = " or ".join(type.name for type in elements)
            held = "nothing" if found is None else found.name
            self._problems.append(f"the key '{name}' is an array of {held}, expected {wanted}")
            return None
        if layers is None or layers > MOST_LAYERS:
            return None
        if len(values) < layers:
            self._problems.append(f"the key '{name}' has {len(values)} entries for {layers} layers")
            return None
        return [number.item() for number in values[:layers]]

    def _integers(self) -> dict[str, int]:
        """The 22 numbers by key, without those that are missing or of the wrong type."""
        numbers: dict[str, int] = {}
        for entry in INTEGER_KEYS:
            value = self._typed(entry.key, [ValueType.UINT32])
            if isinstance(value, int):
                numbers[entry.key] = value
        return numbers

    def _match(self, numbers: dict[str, int], ratios: tuple[int, ...] | None) -> ModelShape | None:
        """The shape with these numbers. With some missing it is the only published one that has the rest, so
        that the tensors can still be checked."""
        fitting = [known for known in KNOWN_SHAPES if not _differences(numbers, known)]
        if len(fitting) == 1:
            self._check_ratios(ratios, fitting[0])
            return fitting[0]
        if len(numbers) < len(INTEGER_KEYS):
            return None
        if numbers["embedding_length"] > WIDEST_EMBEDDING:
            self._problems.append(_unsupported(numbers))
            return None
        return self._test_shape(numbers, ratios)

    def _ratios(self, layers: int | None) -> tuple[int, ...] | None:
        types = [ValueType.INT32, ValueType.UINT32]
        values = self._per_layer("attention.compress_ratios", types, layers)
        return None if values is None else tuple(int(value) for value in values)

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
        faults = admissible_faults(numbers, ratios or ())
        if faults:
            self._problems.append(f"unsupported shape: not a published one, and as a test shape {faults[0]}")
            self._problems.extend(f"unsupported shape: as a test shape {fault}" for fault in faults[1:])
        if faults or ratios is None:
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

    def _check_clamp(self, layers: int | None) -> None:
        want = FLASH.swiglu_clamp
        types = [ValueType.FLOAT32, ValueType.FLOAT64]
        for layer, value in enumerate(self._per_layer("swiglu_clamp_exp", types, layers) or ()):
            if not _close(value, want):
                self._problems.append(
                    f"the key '{PREFIX}swiglu_clamp_exp' is {value:g} for layer {layer}, expected {want:g}"
                )


def _close(got: float, want: float) -> bool:
    """Equal as far as a float32 round trip goes. False for NaN."""
    return abs(got - want) <= 1e-6 * max(1.0, abs(want))


def _differences(numbers: dict[str, int], shape: ModelShape) -> list[str]:
    """The keys that are there with another number than that of `shape`, as `key is N, expected M`."""
    return [
        f"{entry.key} is {numbers[entry.key]}, expected {entry.of(shape)}"
        for entry in INTEGER_KEYS
        if numbers.get(entry.key, entry.of(shape)) != entry.of(shape)
    ]


def _unsupported(numbers: dict[str, int]) -> str:
    nearest = min(KNOWN_SHAPES, key=lambda shape: len(_differences(numbers, shape)))
    return (
        f"unsupported shape: it is nearest to {VARIANT_NAMES[nearest.variant]}, but "
        f"{'; '.join(_differences(numbers, nearest))}"
    )
