"""Float rows to IQ2_XXS: eight elements at a time by an entry of a table, with 4-bit scales.

For one scale, the best entry of an octet minimises `scale * B - 2 * A`, where A is the entry's product with
the weighted magnitudes and B that of its squares with the weights. Both are found once for all 256 entries,
from tables of pairs and quads of elements, since an entry has only three different magnitudes. Sums run in a
fixed order. Spec: model §3.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from shared.quant.iq2 import iq2_grid
from shared.quantise.steps import Exponents, rounded, scaled, stored

Array = npt.NDArray[np.float32]
Bytes = npt.NDArray[np.uint8]
Indices = npt.NDArray[np.intp]

_MAGNITUDES = np.array([8, 25, 43], np.float32)
_GROUPS, _OCTETS = 8, 4  # groups of a block, octets of a group
_LARGEST_MULTIPLE = 31  # a group's scale is an odd multiple, 1 to 31, of an eighth of the block's
# First scales to try, in parts of the one that gives the largest element the largest magnitude.
_FIRST = (1.05, 0.9, 0.77, 0.62)


def iq2_xxs(values: Array, weights: Array) -> Bytes:
    """Blocks uint8 [n, 66] of `values` [n, 256], errors counted by `weights` [n, 256] (positive)."""
    blocks, exponent = scaled(values)
    octets = _Octets.of(*(np.ascontiguousarray(part.reshape(-1, 8).T) for part in (blocks, weights)))
    scale = _group_scales(octets, np.abs(blocks).reshape(-1, 8 * _OCTETS).max(axis=1))
    choice = _first_choice(octets, scale.reshape(-1, _GROUPS), exponent)
    choice = choice.better_of(_refined(octets, choice, exponent))
    return _packed(choice, octets.signs, exponent)


@dataclass(frozen=True, slots=True)
class _Octets:
    """What choosing entries needs of N octets."""

    signs: npt.NDArray[np.uint32]  # [N], index of the sign table
    products: Array  # A: [N, 256]
    squares: Array  # B: [N, 256]

    @classmethod
    def of(cls, values: Array, weights: Array) -> _Octets:
        """From values and weights [8, N]."""
        weighted = np.abs(values) * weights
        negative = np.signbit(values)
        # The eighth sign follows from the others: where it does not, the cheapest element gets the wrong one.
        odd = np.flatnonzero(np.logical_xor.reduce(negative, axis=0))
        cheapest = weighted[:, odd].argmin(axis=0)
        negative[cheapest, odd] ^= True
        weighted[cheapest, odd] *= -1
        bits = negative[:7].astype(np.uint32) << np.arange(7, dtype=np.uint32)[:, None]
        return cls(
            bits.sum(axis=0, dtype=np.uint32), _table(weighted, _MAGNITUDES), _table(weights, _MAGNITUDES**2)
        )

    def entries(self, scale: Array) -> tuple[Indices, Array, Array]:
        """For scales [groups] the best entry of every octet [N], and the groups' sums of A and B [groups]."""
        cost = self.squares * np.repeat(scale, _OCTETS)[:, None]
        cost -= self.products
        cost -= self.products
        entry = cost.argmin(axis=1)
        row = np.arange(len(entry))
        a, b = (_group_sums(part[row, entry]) for part in (self.products, self.squares))
        return entry, a, b


def _group_sums(octets: Array) -> Array:
    one, two, three, four = octets.reshape(-1, _OCTETS).T
    return one + two + three + four


def _not_negative(sums: Array) -> Array:
    result: Array = np.maximum(sums, np.float32(0))
    return result


def _block_sums(groups: Array) -> Array:
    total = groups[:, 0].copy()
    for group in groups.T[1:]:
        total += group
    return total


@cache
def _halves() -> tuple[Indices, Indices]:
    """For the 256 entries the numbers, 0 to 80, of their first and last four magnitudes."""
    levels = np.searchsorted(_MAGNITUDES, iq2_grid())
    place = np.array([27, 9, 3, 1])
    return (levels[:, :4] * place).sum(axis=1), (levels[:, 4:] * place).sum(axis=1)


def _table(factors: Array, magnitudes: Array) -> Array:
    """Sum over an octet's elements of factor times magnitude, for every entry, [N, 256]."""
    levels = factors[:, None] * magnitudes[:, None]  # [8, 3, N]
    pairs = levels[0::2, :, None] + levels[1::2, None, :]  # [4, 3, 3, N]
    pairs = pairs.reshape(4, 9, -1)
    quads = (pairs[0::2, :, None] + pairs[1::2, None, :]).reshape(2, 81, -1)
    first, last = _halves()
    entries = quads[0][first]
    entries += quads[1][last]
    return np.ascontiguousarray(entries.T)


def _group_scales(octets: _Octets, largest: Array) -> Array:
    """The real-valued scale of every group that explains most of it, [groups]."""
    best = np.zeros_like(largest)
    best_gain = np.zeros_like(largest)
    for part in _FIRST:
        _, a, b = octets.entries(largest * np.float32(part / 43))
        scale = _not_negative(a) / b
        gain = scale * a
        better = gain > best_gain
        best, best_gain = np.where(better, scale, best), np.where(better, gain, best_gain)
    return best


@dataclass(frozen=True, slots=True)
class _Choice:
    """Of n blocks: the step [n], the odd multiple of every group [n, 8], all entries [n * 32], and per block
    how much of the squared sum of the elements they explain [n]."""

    step: Array
    multiples: Array
    entries: Indices
    a: Array  # [n, 8]
    b: Array
    gain: Array

    def better_of(self, other: _Choice) -> _Choice:
        better = other.gain > self.gain
        wide = better[:, None]
        entry = np.where(np.repeat(better, _GROUPS * _OCTETS), other.entries, self.entries)
        return _Choice(
            np.where(better, other.step, self.step),
            np.where(wide, other.multiples, self.multiples),
            entry,
            np.where(wide, other.a, self.a),
            np.where(wide, other.b, self.b),
            np.where(better, other.gain, self.gain),
        )


def _choose(octets: _Octets, step: Array, scale: Array) -> _Choice:
    """Multiples nearest to the wanted scales [n, 8] for a step that binary16 holds, and the best entries."""
    divisor = np.where(step > 0, step, np.float32(1))[:, None]
    level = np.clip(np.rint((scale * 8 / divisor - 1) / 2), 0, 15)
    multiples = 2 * level + 1
    final = multiples * step[:, None] / np.float32(8)
    entry, a, b = octets.entries(final.reshape(-1))
    a, b = a.reshape(-1, _GROUPS), b.reshape(-1, _GROUPS)
    gains = final * (2 * a - final * b)
    return _Choice(step, multiples, entry, a, b, _block_sums(gains))


def _first_choice(octets: _Octets, scale: Array, exponent: Exponents) -> _Choice:
    step = rounded(scale.max(axis=1) * np.float32(8 / _LARGEST_MULTIPLE), exponent)
    return _choose(octets, step, scale)


def _refined(octets: _Octets, choice: _Choice, exponent: Exponents) -> _Choice:
    """The step by least squares over a block for the entries chosen, and everything else anew."""
    multiples = choice.multiples / np.float32(8)
    above = _block_sums(multiples * choice.a)
    below = _block_sums(multiples * multiples * choice.b)
    step = rounded(_not_negative(above) / below, exponent)
    return _choose(octets, step, _not_negative(choice.a) / choice.b)


def _packed(choice: _Choice, signs: npt.NDArray[np.uint32], exponent: Exponents) -> Bytes:
    step = stored(choice.step, exponent).view(np.uint8).reshape(-1, 2)
    level = ((choice.multiples.reshape(-1) - 1) / 2).astype(np.uint32)
    shifted = signs.reshape(-1, _OCTETS) << np.arange(0, 28, 7, dtype=np.uint32)
    words = (shifted.sum(axis=1, dtype=np.uint32) | level << np.uint32(28)).astype("<u4")
    entries = choice.entries.astype(np.uint8).reshape(-1, _OCTETS)
    groups = np.concatenate((entries, words.view(np.uint8).reshape(-1, 4)), axis=1)
    return np.concatenate((step, groups.reshape(-1, 64)), axis=1)
