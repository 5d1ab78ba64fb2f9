"""The output head where its epsilon decides: no golden prompt closes every stream."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

mx = pytest.importorskip("mlx.core")

from ds4mlx.model import Model, Streams  # noqa: E402
from tests.support.mlx_models import model  # noqa: E402


def test_streams_whose_gates_are_shut_still_pass_by_epsilon() -> None:
    plain = model("tiny-q2", "float")
    shut = replace(plain.weights.output_mix, base=mx.full((plain.shape.streams,), -1e4))
    head = Model(replace(plain.weights, output_mix=shut), plain.shape, "float")
    streams = np.random.default_rng(5).standard_normal((3, plain.shape.streams, plain.shape.embedding_width))
    # Large enough for the last norm's own epsilon not to matter.
    streams = (streams * 1e6).astype(np.float32)
    mixed = streams.sum(axis=1) * np.float32(plain.shape.hyper_connection_epsilon)
    normed = mixed / np.sqrt(np.square(mixed).mean(axis=1, keepdims=True) + plain.shape.rms_epsilon)
    expected = plain.weights.output(mx.array(normed) * plain.weights.output_norm)
    found = head.output_head(Streams(mx.array(streams)))
    assert mx.abs(found - expected).max().item() <= 1e-4
    assert mx.abs(found).max().item() > 1
