"""The attention half of a layer in PyTorch, for whole sequences [B, T]: window, compressed rows, indexer.

Where the indexer does not choose, every finished row is attended to, and the indexer learns to predict which
rows the attention uses. Spec: model §4.5 to §4.7.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from bench.embedded_model.rounding import round_index, round_row
from shared.model.rope import rotary_frequencies
from shared.model.shape import ModelShape

Weights = Callable[[str], Tensor]
_NEVER = -1e30


@dataclass(frozen=True, slots=True)
class Manner:
    """How a forward pass treats what training may leave out."""

    rounded: bool = False  # cached rows go through FP8 and FP4
    choosing: bool = False  # the indexer's choice is obeyed
    teaching: bool = False  # the indexer's loss is computed
    blind: bool = False  # no compressed row is seen: a control
    random_choice: bool = False  # the indexer chooses by lot: a control


@dataclass(frozen=True, slots=True)
class Attended:
    """Output [B, T, D] of the half layer, and the indexer's loss if it was asked for."""

    output: Tensor
    index_loss: Tensor | None


def rms(values: Tensor, epsilon: float) -> Tensor:
    """Values over their root mean square along the last axis."""
    return F.rms_norm(values, values.shape[-1:], eps=epsilon)


def turns(shape: ModelShape, ratio: int, positions: Tensor) -> Tensor:
    """Complex numbers [n, pairs] that turn the channel pairs at `positions`."""
    frequencies = torch.from_numpy(rotary_frequencies(shape, ratio).copy())
    angles = positions.double()[:, None] * frequencies
    return torch.polar(torch.ones_like(angles), angles).to(torch.complex64)


def rotate(rows: Tensor, by: Tensor) -> Tensor:
    """Rows [..., n, width] with their trailing pairs turned by complex `by` [n, pairs]."""
    pairs = by.shape[-1]
    tail = torch.view_as_complex(rows[..., -2 * pairs :].reshape(*rows.shape[:-1], pairs, 2))
    return torch.cat((rows[..., : -2 * pairs], torch.view_as_real(tail * by).flatten(-2)), -1)


def attend(hidden: Tensor, weights: Weights, shape: ModelShape, ratio: int, manner: Manner) -> Attended:
    """The attention of one layer over normed inputs [B, T, D]."""
    batch, length, _ = hidden.shape
    by = turns(shape, min(ratio, 1), torch.arange(length))
    latent = rms(hidden @ weights("attn_q_a.weight").T, shape.rms_epsilon) * weights("attn_q_a_norm.weight")
    queries = (latent @ weights("attn_q_b.weight").T).view(batch, length, shape.head_count, shape.head_dim)
    queries = rotate(rms(queries, shape.rms_epsilon).transpose(1, 2), by)  # [B, H, T, d]
    rows = rms(hidden @ weights("attn_kv.weight").T, shape.rms_epsilon) * weights("attn_kv_a_norm.weight")
    rows = rotate(rows, by)
    if manner.rounded:
        rows = round_row(rows, shape.rotary_dim)
    queries = queries * (1.0 / math.sqrt(shape.head_dim))
    near = _window_scores(queries, rows, shape.window)
    scores, compressed, index_scores, visible = [near], None, None, None
    if ratio and length >= ratio and not manner.blind:
        compressed = _compress(hidden, weights, "attn", shape, ratio)
        if manner.rounded:
            compressed = round_row(compressed, shape.rotary_dim)
        visible = _finished(length, compressed.shape[1], ratio)
        if ratio == 4 and (manner.teaching or manner.choosing):
            index_scores = _index_scores(hidden.detach(), latent.detach(), weights, shape, by, manner)
            if manner.choosing:
                visible = _chosen(index_scores.detach(), visible, shape.index_top_k, manner)
        far = queries.reshape(batch, -1, shape.head_dim) @ compressed.transpose(1, 2)
        far = far.view(batch, shape.head_count, length, -1)
        scores.append(far.masked_fill(~(visible if visible.dim() == 2 else visible[:, None]), _NEVER))
    sinks = weights("attn_sinks.weight")[None, :, None, None].expand(batch, -1, length, 1)
    shares = torch.softmax(torch.cat((*scores, sinks), -1), -1)
    heads = _window_sum(shares[..., : near.shape[-1]], rows, shape.window)
    loss = None
    if compressed is not None:
        far_shares = shares[..., near.shape[-1] : -1]
        heads = heads + (far_shares.reshape(batch, -1, compressed.shape[1]) @ compressed).view(heads.shape)
        if index_scores is not None and manner.teaching and visible is not None:
            loss = _index_loss(
                index_scores, far_shares.detach(), _finished(length, compressed.shape[1], ratio)
            )
    heads = rotate(heads, by.conj()).transpose(1, 2)
    return Attended(_project(heads, weights, shape), loss)


def _project(heads: Tensor, weights: Weights, shape: ModelShape) -> Tensor:
    batch, length = heads.shape[:2]
    groups = shape.output_groups
    grouped = heads.reshape(batch * length, groups, -1).transpose(0, 1)
    down = weights("attn_output_a.weight").view(groups, shape.output_rank, -1)
    low = torch.bmm(grouped, down.transpose(1, 2)).transpose(0, 1).reshape(batch, length, -1)
    return low @ weights("attn_output_b.weight").T


def _blocks_of(rows: Tensor, window: int) -> Tensor:
    """Rows [B, T, d] as [B, blocks, 2 * window, d]: each block's predecessor and itself."""
    batch, length, width = rows.shape
    blocks = -(-length // window)
    padded = F.pad(rows, (0, 0, window, blocks * window - length))
    pairs = padded.view(batch, blocks + 1, window, width)
    return torch.cat((pairs[:, :-1], pairs[:, 1:]), 2)


def _window_scores(queries: Tensor, rows: Tensor, window: int) -> Tensor:
    """Scores [B, H, T, 2 * window] over the row's block and the one before; what is outside is _NEVER."""
    batch, heads, length, width = queries.shape
    blocks = -(-length // window)
    asked = F.pad(queries, (0, 0, 0, blocks * window - length)).view(batch, heads, blocks, window, width)
    asked = asked.transpose(1, 2).reshape(batch, blocks, heads * window, width)
    scores = (asked @ _blocks_of(rows, window).transpose(2, 3)).view(batch, blocks, heads, window, -1)
    own = torch.arange(window)[:, None]
    other = torch.arange(2 * window) - window
    seen = (other <= own) & (other > own - window)
    first = seen & (other >= 0)
    mask = torch.stack((first, *[seen] * (blocks - 1)))[None, :, None]
    scores = scores.masked_fill(~mask, _NEVER)
    return scores.transpose(1, 2).reshape(batch, heads, blocks * window, -1)[:, :, :length]


def _window_sum(shares: Tensor, rows: Tensor, window: int) -> Tensor:
    """Rows [B, T, d] summed by shares [B, H, T, 2 * window] to [B, H, T, d]."""
    batch, heads, length, span = shares.shape
    blocks = -(-length // window)
    shares = F.pad(shares, (0, 0, 0, blocks * window - length)).view(batch, heads, blocks, window, span)
    shares = shares.transpose(1, 2).reshape(batch, blocks, heads * window, span)
    summed = (shares @ _blocks_of(rows, window)).view(batch, blocks, heads, window, -1)
    return summed.transpose(1, 2).reshape(batch, heads, blocks * window, -1)[:, :, :length]


def _compress(hidden: Tensor, weights: Weights, kind: str, shape: ModelShape, ratio: int) -> Tensor:
    """The finished compressed rows [B, T / ratio, width], rotated, not yet rounded."""
    bias = weights(f"{kind}_compressor_ape.weight")
    norm = weights(f"{kind}_compressor_norm.weight")
    batch, length, _ = hidden.shape
    count, width = length // ratio, len(norm)
    whole = hidden[:, : count * ratio]
    values = (whole @ weights(f"{kind}_compressor_kv.weight").T).view(batch, count, ratio, -1)
    scores = (whole @ weights(f"{kind}_compressor_gate.weight").T).view(batch, count, ratio, -1) + bias
    if bias.shape[1] == 2 * width:  # the first half of the channels serves the next row, the second its own
        earlier = F.pad(values[:, :-1, :, :width], (0, 0, 0, 0, 1, 0))
        values = torch.cat((earlier, values[..., width:]), 2)
        earlier = F.pad(scores[:, :-1, :, :width], (0, 0, 0, 0, 1, 0), value=_NEVER)
        scores = torch.cat((earlier, scores[..., width:]), 2)
    pooled = (torch.softmax(scores, 2) * values).sum(2)
    rows = rms(pooled, shape.rms_epsilon) * norm
    return rotate(rows, turns(shape, ratio, torch.arange(count) * ratio))


def _finished(length: int, rows: int, ratio: int) -> Tensor:
    """Which rows are finished at each position, [T, rows]."""
    return torch.arange(rows) < (torch.arange(length)[:, None] + 1) // ratio


def _index_scores(
    hidden: Tensor, latent: Tensor, weights: Weights, shape: ModelShape, by: Tensor, manner: Manner
) -> Tensor:
    batch, length, _ = hidden.shape
    keys = _compress(hidden, weights, "indexer", shape, 4)
    queries = (latent @ weights("indexer.attn_q_b.weight").T).view(batch, length, -1, shape.index_dim)
    queries = rotate(queries.transpose(1, 2), by)
    if manner.rounded:
        keys, queries = round_index(keys), round_index(queries)
    share = (hidden @ weights("indexer.proj.weight").T) * (shape.index_dim * shape.index_heads) ** -0.5
    match = torch.relu(queries.reshape(batch, -1, shape.index_dim) @ keys.transpose(1, 2))
    match = match.view(batch, shape.index_heads, length, -1)
    return (match * share.transpose(1, 2)[..., None]).sum(1)


def _chosen(scores: Tensor, visible: Tensor, count: int, manner: Manner) -> Tensor:
    """The visible rows with the best scores, [B, T, rows]; all of them while there are no more than that."""
    if scores.shape[-1] <= count:
        return visible[None].expand(scores.shape)
    if manner.random_choice:
        scores = torch.rand_like(scores)
    ranked = scores.masked_fill(~visible, -math.inf)
    best = torch.argsort(ranked, dim=-1, descending=True, stable=True)[..., :count]
    return torch.zeros_like(ranked, dtype=torch.bool).scatter_(-1, best, True) & visible


def _index_loss(scores: Tensor, shares: Tensor, visible: Tensor) -> Tensor:
    """How far the indexer's softmax is from the attention's shares over compressed rows, per token.

    Each position counts as much as its attention looks at compressed rows at all."""
    target = shares.sum(1)
    weight = target.sum(-1)
    target = target / weight.clamp_min(1e-6)[..., None]
    log_shares = torch.log_softmax(scores.masked_fill(~visible, _NEVER), -1)
    divergence = (torch.xlogy(target, target) - target * log_shares).sum(-1)
    return (divergence * weight).sum() / weight.sum().clamp_min(1.0)
