"""Trains the embedded model, resuming where the last run stopped.

`python -m bench.embedded_model.train FOLDER` writes `state.pt` and `log.txt` there. Every step draws its text
from a seed made of the step's number, so that a resumed run goes on as an uninterrupted one would. Stop it
with Ctrl+C or SIGTERM: the state is written first.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from bench.embedded_model import curriculum, vocabulary
from bench.embedded_model.attention import Manner
from bench.embedded_model.batches import training_batch
from bench.embedded_model.checkpoint import read_checkpoint, write_checkpoint
from bench.embedded_model.evaluate import DISTANCES, accuracies, shown
from bench.embedded_model.first_weights import first_weights
from bench.embedded_model.graft import graft
from bench.embedded_model.model import Model
from bench.embedded_model.optimiser import Optimiser
from bench.embedded_model.shape import SHAPE
from bench.embedded_model.shipped_weights import read_shipped
from bench.embedded_model.weight_rounding import as_shipped

SEED = 7
WARM_UP = 60  # steps
MUON_RATE, ADAM_RATE, DECAY = 0.015, 2e-3, 0.01
AVERAGE, AVERAGE_STEPS = 0.98, 5
INDEX_LOSS = 0.3
BIAS_RATE = 1e-3  # of the router's selection bias, towards even use of the experts
SAVE_SECONDS, EVALUATE_STEPS, LOG_STEPS = 600, 200, 10
_LEAST_STEP = 2048  # tokens; after a checkpoint, no step draws the text of an earlier one
_FIXED = ("tid2eid.weight", "exp_probs_b.bias")  # changed by rules or not at all


class Training:
    """Weights, their running average, the optimiser, and how far it has come."""

    def __init__(self, folder: Path, shipped: Path | None = None, trained: int = 0) -> None:
        """Goes on from the state in `folder`, else from a `shipped` checkpoint after `trained` tokens,
        with fresh moments, else begins."""
        self.folder = folder
        self.tokenizer = vocabulary.tokenizer()
        self.weights = first_weights(SHAPE, SEED)
        for name, tensor in self.weights.items():
            tensor.requires_grad_(not name.endswith(_FIXED))
        self.average = {name: tensor.detach().clone() for name, tensor in self.weights.items()}
        self.model = Model(self.weights, SHAPE)
        self.optimiser = Optimiser(self.weights, muon_rate=MUON_RATE, adam_rate=ADAM_RATE, decay=DECAY)
        self.steps = self.tokens = 0
        self.stage = ""  # the last step's
        if (folder / "state.pt").exists():
            self._resume(folder / "state.pt")
        elif shipped is not None:
            held = read_shipped(shipped, SHAPE)
            self._adopt({name: torch.from_numpy(values) for name, values in held.items()})
            self.average = {name: tensor.detach().clone() for name, tensor in self.weights.items()}
            self.tokens, self.steps = trained, trained // _LEAST_STEP
            self.stage = curriculum.stage_at(trained).name

    def step(self, rate: float) -> tuple[float, float, curriculum.Stage]:
        """One step; the mean loss of the model's own tokens, the indexer's loss, and the stage."""
        stage = curriculum.stage_at(self.tokens)
        if stage.grafted and stage.name != self.stage:
            self._graft()
        self.stage = stage.name
        source = random.Random(f"{SEED} {self.steps}")
        length = curriculum.draw_length(source, stage)
        mixture = curriculum.mixture_for(stage, length)
        batch = training_batch(source, self.tokenizer, mixture, length, stage.step)
        manner = Manner(rounded=stage.rounded, choosing=stage.choosing, teaching=stage.teaching)
        if stage.rounded:
            self.model.weights = as_shipped(self.weights, SHAPE)
        streams = self.model.streams(batch.ids, manner, batch.positions)
        loss = F.cross_entropy(self.model.logits(streams), batch.targets)
        index_loss = sum(self.model.index_losses, torch.zeros(()))
        (loss + INDEX_LOSS * index_loss).backward()
        rate *= min(1.0, (self.steps + 1) / WARM_UP) * curriculum.rate_at(self.tokens)
        self.optimiser.step(rate)
        self._balance()
        self.steps += 1
        if self.steps % AVERAGE_STEPS == 0:
            self._follow()
        self.tokens += batch.ids.numel()
        return loss.item(), index_loss.item(), stage

    @torch.no_grad()
    def _graft(self) -> None:
        changed = graft(self.weights, SHAPE, self.tokenizer)
        self.optimiser.forget(changed)
        for name in changed:
            self.average[name].copy_(self.weights[name])

    @torch.no_grad()
    def _balance(self) -> None:
        """Moves the selection bias of every scored layer against the use of its experts."""
        for layer, chosen in self.model.chosen.items():
            use = torch.bincount(chosen.flatten(), minlength=SHAPE.expert_count).float()
            self.weights[f"blk.{layer}.exp_probs_b.bias"] += BIAS_RATE * torch.sign(use.mean() - use)

    @torch.no_grad()
    def _follow(self) -> None:
        keep = min(AVERAGE, self.steps / (self.steps + 40))
        for name, tensor in self.weights.items():
            if tensor.is_floating_point():
                self.average[name].lerp_(tensor, 1 - keep)

    def evaluate(self) -> dict[str, float]:
        """Figures of the averaged weights on a few held-out cases."""
        stage = curriculum.stage_at(self.tokens)
        longest = max(length for length, _ in stage.lengths)
        distances = tuple(distance for distance in DISTANCES if distance < longest)
        manner = Manner(rounded=stage.rounded, choosing=stage.choosing)
        weights = as_shipped(self.average, SHAPE) if stage.rounded else self.average
        return accuracies(Model(weights, SHAPE), self.tokenizer, 40, manner, distances)

    def save(self) -> None:
        write_checkpoint(
            self.folder / "state.pt",
            {
                "weights": {name: tensor.detach() for name, tensor in self.weights.items()},
                "average": self.average,
                "optimiser": self.optimiser.state(),
                "steps": self.steps,
                "tokens": self.tokens,
                "stage": self.stage,
            },
        )

    def _resume(self, path: Path) -> None:
        state = read_checkpoint(path)
        self._adopt(state["weights"])
        self.average = state["average"]
        self.optimiser.restore(state["optimiser"])
        self.steps, self.tokens, self.stage = state["steps"], state["tokens"], state["stage"]

    @torch.no_grad()
    def _adopt(self, weights: Mapping[str, Tensor]) -> None:
        for name, tensor in self.weights.items():
            tensor.copy_(weights[name])


def run(training: Training, rate: float, seconds: float, say: Say) -> None:
    """Trains until time is up or a signal comes, and saves."""
    stopping: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda received, _: stopping.append(received))
    started = saved = time.monotonic()
    losses: deque[float] = deque(maxlen=LOG_STEPS)
    first, stage_name = training.tokens, ""
    while not stopping and time.monotonic() - started < seconds and curriculum.rate_at(training.tokens):
        loss, index_loss, stage = training.step(rate)
        losses.append(loss)
        if stage.name != stage_name:
            stage_name = stage.name
            say(f"stage: {stage_name}")
        if training.steps % LOG_STEPS == 0:
            speed = (training.tokens - first) / (time.monotonic() - started)
            say(
                f"step {training.steps}  tokens {training.tokens / 1e6:.2f} M  "
                f"loss {sum(losses) / len(losses):.3f}  indexer {index_loss:.2f}  {speed:.0f} tokens/s"
            )
        if training.steps % EVALUATE_STEPS == 0:
            say(f"held-out at {training.tokens / 1e6:.2f} M tokens: {shown(training.evaluate())}")
        if time.monotonic() - saved > SAVE_SECONDS:
            training.save()
            saved = time.monotonic()
    training.save()
    say("saved")


class Say:
    """Prints lines and keeps them."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __call__(self, line: str) -> None:
        stamped = f"{time.strftime('%H:%M:%S')} {line}"
        print(stamped, flush=True)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(stamped + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--checkpoint", type=Path, help="shipped weights to go on from without a state")
    parser.add_argument("--trained", type=float, default=0.0, help="millions of tokens that those have seen")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rate", type=float, default=1.0, help="factor on the learning rates")
    parser.add_argument("--hours", type=float, default=1000.0)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    (options.folder / "pid").write_text(f"{os.getpid()}\n")
    torch.set_num_threads(options.threads)
    run(
        Training(options.folder, options.checkpoint, int(options.trained * 1e6)),
        options.rate,
        options.hours * 3600,
        Say(options.folder / "log.txt"),
    )


if __name__ == "__main__":
    main()
