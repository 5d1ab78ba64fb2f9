"""What is trained on and what is kept back, decided word by word so that no run can mix the two.

A person, a tool or a parameter belongs to the training set or to the held-out set for good: by a hash of its
name, not by the seed of a generator.
"""

from __future__ import annotations

import hashlib
from enum import Enum

_HELD_OUT_SHARE = 5  # one name in so many


class Split(Enum):
    """A side of the line between training and evaluation."""

    TRAIN = "train"
    HELD_OUT = "held-out"


def split_of(name: str) -> Split:
    """The side on which `name` stands, always the same."""
    digest = hashlib.sha256(name.encode("utf-8")).digest()
    return Split.HELD_OUT if digest[0] % _HELD_OUT_SHARE == 0 else Split.TRAIN
