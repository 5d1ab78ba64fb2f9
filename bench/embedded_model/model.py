"""The embedded model in PyTorch, for training: whole sequences at once, no cache.

Its weights carry the names of a model file, so that writing one is a matter of formats only. It computes what
`shared.model.reference` computes in `float` mode, or in `kv` mode when rounding is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from bench.embedded_model import hyper_connections
from bench.embedded_model.attention import Manner, attend, rms
from bench.embedded_model.experts import experts
from shared.model.shape import ModelShape


class Model:
    """The forward pass over a mapping from tensor names to weights, matrices as [outputs, inputs]."""

    def __init__(self, weights: Mapping[str, Tensor], shape: ModelShape) -> None:
        self.weights = weights
        self.shape = shape
        self.chosen: dict[int, Tensor] = {}  # expert ids of the last pass, by scored layer
        self.index_losses: list[Tensor] = []  # of the last pass

    def streams(
        self,
        ids: Tensor,
        manner: Manner,
        positions: Tensor | None = None,
        inputs: list[Tensor] | None = None,
    ) -> Tensor:
        """Residual streams [n, S, D] after the last layer for token ids [B, T]: of all B * T positions, or of
        the given ones of the flattened sequence, which spares the others the last layer's experts. What each
        attention works on, [B, T, D], is appended to `inputs`."""
        shape = self.shape
        self.index_losses = []
        tokens = ids.flatten()
        embedded = self.weights["token_embd.weight"][tokens]
        streams = embedded[:, None].expand(-1, shape.streams, -1)
        for layer, ratio in enumerate(shape.compress_ratios):
            weights = self._layer(layer)
            mixed, post, combine = self._before(streams, weights, "attn")
            hidden = rms(mixed, shape.rms_epsilon) * weights("attn_norm.weight")
            hidden = hidden.view(*ids.shape, -1)
            if inputs is not None:
                inputs.append(hidden)
            attended = attend(hidden, weights, shape, ratio, manner)
            if attended.index_loss is not None:
                self.index_losses.append(attended.index_loss)
            output = attended.output.flatten(0, 1)
            streams = hyper_connections.after(streams, output, post, combine)
            if positions is not None and layer == shape.layer_count - 1:
                streams, tokens = streams[positions], tokens[positions]
            mixed, post, combine = self._before(streams, weights, "ffn")
            hidden = rms(mixed, shape.rms_epsilon) * weights("ffn_norm.weight")
            output = self._experts(layer, hidden, tokens, weights)
            streams = hyper_connections.after(streams, output, post, combine)
        return streams

    def logits(self, streams: Tensor) -> Tensor:
        """Logits [n, vocabulary] of streams [n, S, D]."""
        shape, weights = self.shape, self.weights
        mix = hyper_connections.mixes(streams, weights["output_hc_fn.weight"], shape.rms_epsilon)
        share = torch.sigmoid(mix * weights["output_hc_scale.weight"] + weights["output_hc_base.weight"])
        share = share + shape.hyper_connection_epsilon
        mixed = torch.bmm(share[:, None], streams)[:, 0]
        hidden = rms(mixed, shape.rms_epsilon) * weights["output_norm.weight"]
        return hidden @ weights["output.weight"].T

    def _layer(self, layer: int) -> Callable[[str], Tensor]:
        return lambda name: self.weights[f"blk.{layer}.{name}"]

    def _before(
        self, streams: Tensor, weights: Callable[[str], Tensor], half: str
    ) -> tuple[Tensor, Tensor, Tensor]:
        return hyper_connections.before(
            streams,
            weights(f"hc_{half}_fn.weight"),
            weights(f"hc_{half}_scale.weight"),
            weights(f"hc_{half}_base.weight"),
            rounds=self.shape.sinkhorn_rounds,
            epsilon=self.shape.hyper_connection_epsilon,
            rms_epsilon=self.shape.rms_epsilon,
        )

    def _experts(self, layer: int, hidden: Tensor, ids: Tensor, weights: Callable[[str], Tensor]) -> Tensor:
        hashed = layer < self.shape.hash_layers
        table = weights("ffn_gate_tid2eid.weight")[ids] if hashed else None
        bias = None if hashed else self.weights.get(f"blk.{layer}.exp_probs_b.bias")
        output, chosen = experts(hidden, table, weights, bias, self.shape)
        if not hashed:
            self.chosen[layer] = chosen
        return output
