"""Batches of equally long conversations as tensors."""

from __future__ import annotations

import random
from dataclasses import dataclass

import torch
from torch import Tensor

from bench.embedded_model.conversation import Mixture, conversation
from bench.embedded_model.rendered import Tokens, tokens_of
from bench.embedded_model.split import Split
from shared.text.tokenizer import Tokenizer

PADDING = 2  # id of the padding mark


@dataclass(frozen=True, slots=True)
class Batch:
    """Ids [B, T], and of the flattened positions those whose next token the model writes itself."""

    ids: Tensor
    positions: Tensor
    targets: Tensor


def training_batch(
    source: random.Random, tokenizer: Tokenizer, mixture: Mixture, length: int, tokens: int
) -> Batch:
    """About `tokens` tokens of training conversations, each cut to `length`."""
    samples = []
    for _ in range(max(1, tokens // length)):
        drawn = tokens_of(conversation(source, Split.TRAIN, mixture, length), tokenizer)
        samples.append(Tokens(drawn.ids[:length], drawn.own[:length]))
    return batch_of(samples)


def batch_of(samples: list[Tokens]) -> Batch:
    """Samples side by side, the shorter ones padded at the end."""
    length = max(len(sample.ids) for sample in samples)
    ids = torch.full((len(samples), length), PADDING)
    own = torch.zeros((len(samples), length), dtype=torch.bool)
    for row, sample in enumerate(samples):
        ids[row, : len(sample.ids)] = torch.tensor(sample.ids)
        own[row, : len(sample.own)] = torch.tensor(sample.own)
    before = torch.nonzero(own[:, 1:])
    positions = before[:, 0] * length + before[:, 1]
    return Batch(ids, positions, ids.flatten()[positions + 1])
