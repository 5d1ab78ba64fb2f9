"""Blocks of `scale * code - minimum`, the form that Q2_K and Q4_K share: choosing every number of them.

A block has 256 elements in parts of 16 or 32. Each part has an integer scale and minimum, each block two
binary16 steps for them. All are chosen to make the weighted squared error small. Only sums in a fixed order
and correctly rounded operations are used, so that every processor finds the same bytes. Must not know: how
the numbers are packed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from shared.quantise.steps import Exponents, rounded, scaled, stored

Array = npt.NDArray[np.float32]
Half = npt.NDArray[np.float16]

BLOCK = 256
# Candidates for the first scale of a part, in codes that its range is stretched or shrunk by.
_STRETCH = np.arange(-14, 10, 2, dtype=np.float32) / 10


@dataclass(frozen=True, slots=True)
class Form:
    """What a type can hold: elements of a part, the largest code, the largest scale or minimum."""

    part: int
    code_limit: int
    scale_limit: int


@dataclass(slots=True)
class Affine:
    """`n` blocks of S parts: codes uint8 [n, 256], scales and minima uint8 [n, S], steps float16 [n]."""

    codes: npt.NDArray[np.uint8]
    scales: npt.NDArray[np.uint8]
    minima: npt.NDArray[np.uint8]
    scale_step: Half
    minimum_step: Half


def fit(values: Array, weights: Array, form: Form) -> Affine:
    """The numbers that stand for `values` [n, 256] with a small error, squared and weighted by `weights`
    [n, 256] (positive)."""
    normal, exponent = scaled(values)
    blocks = _Blocks(_by_part(normal, form), _by_part(weights, form), form)
    scale, minimum = _first_guess(blocks.values, blocks.weights, form)
    best = _quantised(blocks, scale, minimum, exponent)
    best.search(blocks)
    # A second such round lowers the error by another 0.4 % and takes as long again.
    other = best.with_better_steps(blocks, exponent)
    other.search(blocks)
    best.take_where_better(other)
    return best.result(blocks, exponent)


def _by_part(rows: Array, form: Form) -> Array:
    """[n, 256] as [elements of a part, S, n]: sums over a part add whole rows, in order."""
    return np.ascontiguousarray(rows.reshape(len(rows), -1, form.part).transpose(2, 1, 0))


@dataclass(frozen=True, slots=True)
class _Blocks:
    values: Array  # [part, S, n], scaled by a power of two to below 1
    weights: Array
    form: Form


def _first_guess(values: Array, weights: Array, form: Form) -> tuple[Array, Array]:
    """Real-valued scale and minimum of every part, [S, n]: the best of several, each fitted to its codes."""
    low = np.minimum(values.min(axis=0), np.float32(0))
    extent = values.max(axis=0) - low
    flat = extent <= 0
    extent[flat] = 1
    risen = values - low
    total, weighted = weights.sum(axis=0), weights * values
    first = weighted.sum(axis=0)
    best_scale, best_minimum = np.where(flat, np.float32(0), extent / form.code_limit), -low
    best_error = _error(
        values,
        weights,
        np.minimum(np.rint(risen * (form.code_limit / extent)), form.code_limit),
        best_scale,
        best_minimum,
    )
    for stretch in _STRETCH:
        codes = np.minimum(
            np.rint(risen * ((form.code_limit + stretch) / extent)), np.float32(form.code_limit)
        )
        scaled = weights * codes
        one, two, cross = scaled.sum(axis=0), (scaled * codes).sum(axis=0), (weighted * codes).sum(axis=0)
        scale, minimum = _line(total, one, two, first, cross)
        error = _error(values, weights, codes, scale, minimum)
        better = (error < best_error) & ~flat
        best_error = np.where(better, error, best_error)
        best_scale = np.where(better, scale, best_scale)
        best_minimum = np.where(better, minimum, best_minimum)
    return best_scale, best_minimum


def _line(total: Array, one: Array, two: Array, first: Array, cross: Array) -> tuple[Array, Array]:
    """Least squares for `scale * code - minimum`, the minimum not below zero."""
    determinant = total * two - one * one
    sound = determinant > 0
    divisor = np.where(sound, determinant, np.float32(1))
    minimum = np.where(sound, (one * cross - two * first) / divisor, np.float32(-1))
    scale = (total * cross - one * first) / divisor
    without = minimum <= 0
    alone = cross / np.where(two > 0, two, np.float32(1))
    return np.where(without, alone, scale), np.where(without, np.float32(0), minimum)


def _error(values: Array, weights: Array, codes: Array, scale: Array, minimum: Array) -> Array:
    """Weighted squared error of every part, [S, n]."""
    difference = codes * scale
    difference -= minimum
    difference -= values
    difference *= difference
    difference *= weights
    result: Array = difference.sum(axis=0)
    return result


def _encode(values: Array, scale: Array, minimum: Array, form: Form) -> Array:
    """The nearest codes, [part, S, n]; zero where the scale is."""
    inverse = np.where(scale > 0, 1 / np.where(scale > 0, scale, np.float32(1)), np.float32(0))
    codes = values + minimum
    codes *= inverse
    np.rint(codes, out=codes)
    np.maximum(codes, np.float32(0), out=codes)
    np.minimum(codes, np.float32(form.code_limit), out=codes)
    return codes


@dataclass(slots=True)
class _State:
    """Integer scales and minima [S, n] as float32, the two steps [n] (values that binary16 holds, scaled like
    the blocks), and the error of every block [n]."""

    scales: Array
    minima: Array
    scale_step: Array
    minimum_step: Array
    error: Array

    def codes(self, blocks: _Blocks) -> Array:
        scale, minimum = self.scale_step * self.scales, self.minimum_step * self.minima
        return _encode(blocks.values, scale, minimum, blocks.form)

    def search(self, blocks: _Blocks) -> None:
        """Move every scale and minimum to the best of its neighbours; sets the error."""
        middle_scales, middle_minima = self.scales, self.minima
        best_error: Array | None = None
        limit = np.float32(blocks.form.scale_limit)
        for up in (0, -1, 1):
            for over in (0, -1, 1):
                scales = np.clip(middle_scales + np.float32(up), 0, limit)
                minima = np.clip(middle_minima + np.float32(over), 0, limit)
                scale, minimum = self.scale_step * scales, self.minimum_step * minima
                codes = _encode(blocks.values, scale, minimum, blocks.form)
                error = _error(blocks.values, blocks.weights, codes, scale, minimum)
                if best_error is None:
                    best_error = error
                    continue
                better = error < best_error
                best_error = np.where(better, error, best_error)
                self.scales = np.where(better, scales, self.scales)
                self.minima = np.where(better, minima, self.minima)
        assert best_error is not None
        self.error = best_error.sum(axis=0)

    def with_better_steps(self, blocks: _Blocks, exponent: Exponents) -> _State:
        """The steps that fit the present codes best, by least squares over a whole block."""
        codes, weights = self.codes(blocks), blocks.weights
        rise = codes * self.scales
        fall = np.broadcast_to(self.minima, codes.shape)
        weighted_rise, weighted_fall = weights * rise, weights * fall

        def total(left: Array, right: Array) -> Array:
            added: Array = (left * right).sum(axis=0).sum(axis=0)
            return added

        rr, rf, ff = total(weighted_rise, rise), total(weighted_rise, fall), total(weighted_fall, fall)
        rx, fx = total(weighted_rise, blocks.values), total(weighted_fall, blocks.values)
        determinant = rr * ff - rf * rf
        sound = determinant > np.float32(1e-6) * rr * ff
        divisor = np.where(sound, determinant, np.float32(1))
        alone = rx / np.where(rr > 0, rr, np.float32(1))
        scale_step = np.where(sound, (ff * rx - rf * fx) / divisor, alone)
        minimum_step = np.where(sound, (rf * rx - rr * fx) / divisor, self.minimum_step)
        usable = (scale_step > 0) & (minimum_step >= 0)
        return _State(
            self.scales,
            self.minima,
            rounded(np.where(usable, scale_step, self.scale_step), exponent),
            rounded(np.where(usable, minimum_step, self.minimum_step), exponent),
            self.error,
        )

    def take_where_better(self, other: _State) -> None:
        better = other.error < self.error
        for name in ("scales", "minima", "scale_step", "minimum_step", "error"):
            setattr(self, name, np.where(better, getattr(other, name), getattr(self, name)))

    def result(self, blocks: _Blocks, exponent: Exponents) -> Affine:
        count = len(self.scale_step)
        return Affine(
            np.ascontiguousarray(self.codes(blocks).transpose(2, 1, 0))
            .reshape(count, BLOCK)
            .astype(np.uint8),
            self.scales.T.astype(np.uint8),
            self.minima.T.astype(np.uint8),
            stored(self.scale_step, exponent),
            stored(self.minimum_step, exponent),
        )


def _quantised(blocks: _Blocks, scale: Array, minimum: Array, exponent: Exponents) -> _State:
    """Integers for real-valued scales and minima, the largest of a block taking the largest integer."""
    limit = np.float32(blocks.form.scale_limit)
    found = []
    for part in (scale, minimum):
        step = rounded(part.max(axis=0) / limit, exponent)
        inverse = np.where(step > 0, 1 / np.where(step > 0, step, np.float32(1)), np.float32(0))
        found.append((np.clip(np.rint(part * inverse), 0, limit), step))
    (scales, scale_step), (minima, minimum_step) = found
    return _State(scales, minima, scale_step, minimum_step, np.full(len(exponent), np.inf, np.float32))
