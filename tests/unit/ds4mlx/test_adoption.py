from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from shared.gguf.reader import GgufFile
from tests.support.golden import tiny_q2

mx = pytest.importorskip("mlx.core")

from ds4mlx.adoption import TensorBytes  # noqa: E402


def refuse(pages: Any) -> mx.array:
    raise ValueError("no shared memory")


def test_adopted_and_copied_tensors_hold_the_files_bytes() -> None:
    with GgufFile.open(tiny_q2()) as gguf:
        adopted: list[int] = []
        notes: list[str] = []

        def share(pages: np.ndarray) -> mx.array:
            adopted.append(pages.shape[0])
            return mx.array(pages)

        source = TensorBytes(gguf, adopt=True, notes=notes, import_pages=share)
        for name, info in gguf.tensors.items():
            assert np.array_equal(np.array(source.rows(name, (1, info.nbytes)))[0], gguf.data(name)), name
        # All but tensors in the last, incomplete page.
        assert len(gguf.tensors) - 3 <= len(adopted) < len(gguf.tensors)
        assert len(notes) == 1
        assert "last, incomplete page" in notes[0]


def test_a_platform_that_cannot_share_copies_with_one_note() -> None:
    with GgufFile.open(tiny_q2()) as gguf:
        notes: list[str] = []
        source = TensorBytes(gguf, adopt=True, notes=notes, import_pages=refuse)
        for name in ("blk.0.ffn_down_exps.weight", "blk.1.ffn_down_exps.weight"):
            rows = source.rows(name, (8, gguf.tensors[name].nbytes // 8))
            assert np.array_equal(np.array(rows).reshape(-1), gguf.data(name))
        assert notes == [
            "copying weights that cannot be mapped (blk.0.ffn_down_exps.weight: no shared memory)"
        ]


def test_copying_asks_nobody() -> None:
    with GgufFile.open(tiny_q2()) as gguf:
        source = TensorBytes(gguf, adopt=False, notes=[], import_pages=lambda pages: pytest.fail("asked"))
        assert source.rows("output_norm.weight", (1024,)).shape == (1024,)
