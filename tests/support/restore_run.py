"""A program that restores states from a store's files and goes on: for tests of what a new process sees.

Its input is one JSON `Order`; the results go to the file that it names: for each prompt `tokens_I` and
`logits_I`, as `continuation` gives them, and `kept_I`, how many tokens the file gave back.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from shared.kv.store.model_identity import ModelIdentity
from shared.kv.store.policy import StoreSettings
from shared.kv.store.store import KvStore
from shared.sampling import GREEDY
from shared.session import Engine, Session
from tests.support.golden import model_path

STEPS = 32


@dataclass(frozen=True, slots=True)
class Order:
    """`prompts` are the bytes of rendered prompts as hex; `context` counts tokens."""

    directory: str
    model: str
    context: int
    prompts: list[str]
    results: str


def load_mlx(name: str) -> Engine:
    from ds4mlx.engine import load

    return load(model_path(name))


def open_store(directory: Path, engine: Engine) -> KvStore:
    """A store that keeps everything, however short."""
    model = ModelIdentity(engine.model_id, engine.quant_bits, engine.fingerprint, engine.name)
    settings = StoreSettings(min_tokens=1, budget_bytes=None)
    return KvStore(directory, model, settings, say=_refuse_failure, decode=engine.tokenizer.decode)


def restored(store: KvStore, prompt: bytes, session: Session) -> Session:
    """`session` in the state of the longest file that `prompt` begins with."""
    best = store.find(prompt, session.context)[0]
    assert store.load(best, prompt, session, lambda tokens, file: True) is not None
    return session


def continuation(session: Session) -> tuple[list[int], npt.NDArray[np.float32]]:
    """The greedy tokens from here, and the logits before the first, between, and after the last."""
    tokens, rows = [], [session.logits()]
    for _ in range(STEPS):
        tokens.append(session.pick(GREEDY).value())
        session.submit(tokens[-1])
        rows.append(session.logits())
    return tokens, np.array(rows)


def fulfil(order: Order) -> None:
    engine = load_mlx(order.model)
    store = open_store(Path(order.directory), engine)
    results: dict[str, npt.ArrayLike] = {}
    for number, prompt in enumerate(order.prompts):
        session = restored(store, bytes.fromhex(prompt), engine.open_session(order.context))
        results[f"kept_{number}"] = session.position
        results[f"tokens_{number}"], results[f"logits_{number}"] = continuation(session)
        session.close()
    store.close()
    engine.close()
    np.savez(order.results, **{name: np.asarray(values) for name, values in results.items()})


def _refuse_failure(line: str) -> None:
    assert "failed" not in line, line


def main(arguments: Sequence[str]) -> None:
    fulfil(Order(**json.loads(arguments[0])))


if __name__ == "__main__":
    main(sys.argv[1:])
