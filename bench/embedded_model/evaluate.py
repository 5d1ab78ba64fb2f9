"""How many held-out cases the model in training answers word for word.

A greedy answer equals the wanted one exactly when every wanted token is the likeliest after the ones before
it, so one pass over the whole conversation judges a case. Run it with
`python -m bench.embedded_model.evaluate CHECKPOINT`.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import torch

from bench.embedded_model import vocabulary
from bench.embedded_model.attention import Manner
from bench.embedded_model.batches import batch_of
from bench.embedded_model.cases import ABILITIES, Case, cases, far_recall
from bench.embedded_model.checkpoint import read_weights
from bench.embedded_model.model import Model
from bench.embedded_model.rendered import tokens_of
from bench.embedded_model.shape import SHAPE
from shared.text.tokenizer import Tokenizer

DISTANCES = (250, 500, 1000, 2000, 4000, 6000)
_TOKENS_AT_ONCE = 6000


@torch.no_grad()
def right_answers(model: Model, tokenizer: Tokenizer, asked: list[Case], manner: Manner) -> list[bool]:
    """Whether each case is answered exactly, thoughts and end marks included."""
    right: list[bool] = []
    rendered = [tokens_of(case.conversation, tokenizer) for case in asked]
    while rendered:
        width = max(len(sample.ids) for sample in rendered[:32])
        count = max(1, min(32, _TOKENS_AT_ONCE // width))
        batch = batch_of(rendered[:count])
        streams = model.streams(batch.ids, manner, batch.positions)
        hit = model.logits(streams).argmax(-1) == batch.targets
        row = batch.positions // batch.ids.shape[1]
        right += [bool(hit[row == number].all()) for number in range(min(count, len(rendered)))]
        rendered = rendered[count:]
    return right


def accuracies(
    model: Model, tokenizer: Tokenizer, count: int, manner: Manner, distances: tuple[int, ...], seed: int = 1
) -> dict[str, float]:
    """The share of right answers by ability, and of recall by distance in tokens."""
    figures = {}
    for ability in ABILITIES:
        right = right_answers(model, tokenizer, cases(ability, count, seed), manner)
        figures[ability] = sum(right) / count
    for distance in distances:
        fewer = max(4, min(count, 60_000 // distance))
        right = right_answers(model, tokenizer, far_recall(fewer, seed, distance), manner)
        figures[f"recall@{distance}"] = sum(right) / fewer
    return figures


def shown(figures: dict[str, float]) -> str:
    """One line of figures."""
    return "  ".join(f"{name} {share:.0%}" for name, share in figures.items())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--float", action="store_true", help="without the rounding of cached rows")
    options = parser.parse_args()
    model, tokenizer = Model(read_weights(options.checkpoint), SHAPE), vocabulary.tokenizer()
    manner = Manner(rounded=not options.float, choosing=True)
    print(shown(accuracies(model, tokenizer, options.cases, manner, DISTANCES)))
    for name, control in (
        ("compressed rows masked", replace(manner, blind=True)),
        ("indexer by lot", replace(manner, random_choice=True)),
    ):
        far = right_answers(model, tokenizer, far_recall(40, 1, 2000), control)
        print(f"recall@2000 with {name}: {sum(far) / len(far):.0%}")


if __name__ == "__main__":
    main()
