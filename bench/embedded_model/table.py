"""What each recipe costs: `python -m bench.embedded_model.table` prints the embedded model's quality table.

The shipped checkpoint is converted in every recipe. Each file, and the checkpoint itself in float32, then
reads held-out conversations (the mean negative log-likelihood of the tokens that the model has to write) and
answers cases of `ds4 eval --suite embedded`. All through the NumPy reference, so that only weights differ.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from apps.eval.ability_suite import AbilitySuite, shares_of
from apps.eval.case_run import ANSWER_TOKENS
from bench.embedded_model import vocabulary
from bench.embedded_model.cases import ABILITIES, cases
from bench.embedded_model.checkpoint_engine import CheckpointEngine, CheckpointWeights
from bench.embedded_model.conversation import Mixture, conversation
from bench.embedded_model.rendered import Tokens, segments_of, tokens_of
from bench.embedded_model.ship import CHECKPOINT, RECIPE, convert_checkpoint
from bench.embedded_model.split import Split
from shared.abilities.case import AbilityCase
from shared.abilities.run import run_case
from shared.model.open import open_model
from shared.model.reference import Reference
from shared.model.reference_engine import ReferenceEngine, load
from shared.model.reference_state import ReferenceState
from shared.model.reference_weights import ReferenceWeights
from shared.quantise.imatrix import read_imatrix, write_imatrix
from shared.quantise.imatrix_reading import read_all
from shared.quantise.imatrix_sums import ImportanceSums
from shared.sampling import token_logprob
from shared.text.segments import join

FLOAT = "checkpoint in float32"
WITH_IMATRIX = "q2 with importance"
RECIPES = ("mxfp4", "q4", "q2")
_BEGIN, _END = "<!-- quality table -->", "<!-- end of the quality table -->"
_TEXT_SEED = 2  # the cases of `ds4 eval` have another
_TEXTS = 12  # conversations of each ability whose tokens are scored
_IMPORTANCE_TEXTS = 60  # of training text: what is held out is not looked at


@dataclass(frozen=True, slots=True)
class Variant:
    """One row to measure: a model file, or the checkpoint that it was made from."""

    name: str
    path: Path
    folder: Path | None = None

    def engine(self) -> ReferenceEngine:
        return load(self.path) if self.folder is None else CheckpointEngine(self.folder, self.path)

    def mean_nll(self, texts: list[Tokens]) -> float:
        """Mean negative log-likelihood, in nats, of the tokens that the model has to write itself."""
        with open_model(self.path) as file:
            if self.folder is None:
                weights = ReferenceWeights(file.gguf, file.shape)
            else:
                weights = CheckpointWeights(self.folder, file.shape)
            reference = Reference(weights, file.shape)
            found: list[float] = []
            for text in texts:
                own = np.flatnonzero(np.array(text.own))
                streams, _ = reference.forward(text.ids, ReferenceState(file.shape, len(text.ids) + 1))
                rows = reference.output_head(streams[own - 1])
                found += [-token_logprob(row, text.ids[at]) for at, row in zip(own, rows, strict=True)]
        return float(np.mean(found))


@dataclass(frozen=True, slots=True)
class Row:
    """What was measured. `nll` in nats for each token; `right` and `asked` by ability, and for recall also by
    distance (`recall@1000`)."""

    name: str
    nbytes: int
    nll: float
    right: dict[str, int]
    asked: dict[str, int]


def variants(checkpoint: Path, folder: Path) -> Iterator[Variant]:
    """Every recipe's file, written to `folder`."""
    paths = {recipe: folder / f"{recipe}.gguf" for recipe in RECIPES}
    for recipe, path in paths.items():
        convert_checkpoint(checkpoint, path, recipe)
        if recipe == "mxfp4":
            yield Variant(FLOAT, path, checkpoint)
        yield Variant(recipe, path)
    importance = folder / "importance.dat"
    collect_importance(paths["mxfp4"], importance)
    path = folder / "q2-importance.gguf"
    convert_checkpoint(checkpoint, path, "q2", read_imatrix(importance))
    yield Variant(WITH_IMATRIX, path)


def collect_importance(model: Path, path: Path) -> None:
    """What `ds4 imatrix` collects, from conversations of the training side."""
    source = random.Random("importance")
    texts = [
        join(segments_of(conversation(source, Split.TRAIN, Mixture(1, 1, 1, 1), source.choice((256, 1024)))))
        for _ in range(_IMPORTANCE_TEXTS)
    ]
    with closing(load(model)) as engine:
        sums = ImportanceSums(engine.shape)
        with closing(engine.open_watched_session(8192, sums)) as session:
            read_all(
                session,
                engine.tokenizer,
                texts,
                max_tokens=None,
                told=lambda prompts, tokens: None,
                cancelled=lambda: False,
            )
        write_imatrix(path, sums.entries(), len(sums.names), dataset="training text", chunks=sums.batches)


def measure(variant: Variant, asked: list[AbilityCase], context: int) -> Row:
    """One row, in a process of its own."""
    nll = variant.mean_nll(held_out_texts())
    with closing(variant.engine()) as engine, closing(engine.open_session(context)) as session:
        results = [run_case(engine, session, case, ANSWER_TOKENS, lambda: False) for case in asked]
    shares = shares_of(results)
    nbytes = variant.path.stat().st_size
    if variant.folder is not None:
        nbytes = sum(path.stat().st_size for path in variant.folder.iterdir())
    right, of = ({name: share[part] for name, share in shares.items()} for part in (0, 1))
    return Row(variant.name, nbytes, nll, right, of)


def held_out_texts() -> list[Tokens]:
    """Conversations of every ability, of the held-out side."""
    tokenizer = vocabulary.tokenizer()
    return [
        tokens_of(case.conversation, tokenizer)
        for ability in ABILITIES
        for case in cases(ability, _TEXTS, _TEXT_SEED)
    ]


def markdown(rows: list[Row]) -> str:
    """A line for every row, with the abilities as a whole."""
    names = [name for name in rows[0].right if "@" not in name]
    lines = [
        "| weights | size | NLL | " + " | ".join(names) + " |",
        "|---|---|---|" + "---|" * len(names),
    ]
    for row in rows:
        shares = " | ".join(f"{row.right[name]}/{row.asked[name]}" for name in names)
        lines.append(f"| {row.name} | {row.nbytes / 1e6:.1f} MB | {row.nll:.4f} | {shares} |")
    return "\n".join(lines)


def by_distance(row: Row) -> str:
    """Where recall ends, in tokens between a fact and the question."""
    found = sorted((int(name.partition("@")[2]), name) for name in row.right if "@" in name)
    shares = [f"{row.right[name]}/{row.asked[name]}" for _, name in found]
    return "\n".join(
        (
            "| distance | " + " | ".join(str(distance) for distance, _ in found) + " |",
            "|---|" + "---|" * len(found),
            f"| recall, {row.name} | " + " | ".join(shares) + " |",
        )
    )


def into_document(path: Path, text: str) -> None:
    """Put `text` between the marks of a document. Raises ValueError where they are missing."""
    held = path.read_text(encoding="utf-8")
    before, begin, rest = held.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not begin or not end:
        raise ValueError(f"{path} has no place for the table: {_BEGIN} ... {_END}")
    path.write_text(f"{before}{begin}\n{text}\n{end}{after}", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=None, help="of each ability; all by default")
    parser.add_argument("--jobs", type=int, default=2, help="rows to measure side by side")
    parser.add_argument("--checkpoint", type=Path, default=CHECKPOINT)
    parser.add_argument("--json", action="store_true", help="JSON instead of a table")
    parser.add_argument("--document", type=Path, default=None, help="put the table between its marks there")
    options = parser.parse_args()
    suite = AbilitySuite.read(options.cases, None)
    rows: dict[str, Row] = {}
    with tempfile.TemporaryDirectory() as folder, ProcessPoolExecutor(options.jobs) as pool:
        context = suite.context_needed(vocabulary.tokenizer())
        order, waiting = [], []
        for variant in variants(options.checkpoint, Path(folder)):
            order.append(variant.name)
            waiting.append(pool.submit(measure, variant, list(suite.cases), context))
        for done in as_completed(waiting):
            row = done.result()
            rows[row.name] = row
            print(f"{len(rows)}/{len(order)} {row.name}: NLL {row.nll:.4f}", file=sys.stderr, flush=True)
    found = [rows[name] for name in order]
    shipped = next(row for row in found if row.name == RECIPE)
    text = f"{markdown(found)}\n\n{by_distance(shipped)}"
    if options.document is not None:
        into_document(options.document, text)
    print(json.dumps([asdict(row) for row in found], indent=2) if options.json else text)


if __name__ == "__main__":
    main()
