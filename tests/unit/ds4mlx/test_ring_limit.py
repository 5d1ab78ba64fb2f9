"""A prefill step larger than the ring of raw keys can take is cut, from position 0 too."""

from __future__ import annotations

import numpy as np
import pytest

from shared.model import memory
from tests.support.golden import golden_logits
from tests.support.limits import FLOAT_LIMIT

pytest.importorskip("mlx.core")

from ds4mlx.session import MlxSession
from shared.power import PowerGovernor
from tests.support.mlx_models import model


@pytest.mark.parametrize("already", [150, pytest.param(0, marks=pytest.mark.long)])
def test_a_whole_prompt_in_one_step_does_not_overwrite_what_it_reads(
    already: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = golden_logits("tiny-q2", "long")["tokens"][:500].tolist()
    plain = MlxSession(model("tiny-q2", "float"), 640, 128, PowerGovernor(100))
    plain.sync(tokens)
    monkeypatch.setattr(memory, "_LARGEST_RING", 256)
    limited = MlxSession(model("tiny-q2", "float"), 640, 0, PowerGovernor(100))
    if already:
        limited.sync(tokens[:already])
    limited.sync(tokens)
    assert np.abs(limited.logits() - plain.logits()).max() <= FLOAT_LIMIT
