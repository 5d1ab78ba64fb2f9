"""Tokens prefilled in each turn of agents' sessions, beside the tokens that were really new.

The scripted engine plays the model; slots, checkpoints and the store are the real ones. Its states take about
a thousandth of the bytes that Flash's would, and so does the store's budget.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.kv_agents import SESSIONS, Request
from shared.kv.live.prefill import Prefill
from shared.kv.live.prompt import Prompt
from shared.kv.live.slot import LiveSlot
from shared.kv.live.slots import Slots
from shared.kv.store.model_identity import ModelIdentity
from shared.kv.store.policy import DEFAULT_BUDGET_BYTES, StoreSettings
from shared.kv.store.store import KvStore
from shared.prefix import common_prefix
from shared.sampling import GREEDY
from shared.scripted import ScriptedEngine
from shared.scripted.script_file import parse_script
from shared.text.template import render_chat
from tests.support.conversations import turn as scripted_turn

CONTEXT = 65536
SCALE = 1000  # Flash's bytes over the bytes here
_COST = {"fixed_bytes": 23_000, "bytes_per_token": 14}
SETTINGS = StoreSettings(budget_bytes=DEFAULT_BUDGET_BYTES // SCALE, durable=False)


@dataclass(frozen=True, slots=True)
class Turn:
    """Tokens of a prompt, those of them that no earlier turn had (from the first new or changed message on),
    those that were computed, and bytes that the store wrote, as of Flash."""

    name: str
    prompt: int
    new: int
    prefilled: int
    source: str
    written: int


class Program:
    """What a server does with `slots` for one request after another."""

    def __init__(self, engine: ScriptedEngine, slots: int, store: KvStore) -> None:
        self._engine = engine
        self._store = store
        sessions = [engine.open_session(CONTEXT) for _ in range(slots)]
        self._slots = Slots(sessions, engine.tokenizer, store=store)
        self._timelines: list[list[int]] = []

    def turn(self, request: Request) -> Turn:
        segments = render_chat(request.messages, request.tools, effort="none", profile="official")
        prompt = Prompt(segments, self._engine.tokenizer.encode_segments(segments))
        new = self._new_tokens(prompt.tokens)
        start = self._slots.begin(prompt)
        prefill = Prefill(self._slots, start)
        prefilled = prefill.run().evaluated
        written = prefill.report().saved_bytes + self._answer(request, start.slot)
        self._store.flush()
        self._timelines.append(start.slot.session.tokens)
        self._slots.release(start.slot)
        return Turn(request.name, len(prompt.tokens), new, prefilled, start.source, written * SCALE)

    def _answer(self, request: Request, slot: LiveSlot) -> int:
        """Decode to the end of the turn; the bytes saved on the way."""
        session, saved_bytes, begin = slot.session, 0, slot.session.position
        end_of_turn = self._engine.tokenizer.specials.eos
        while True:
            saved = self._slots.while_decoding(slot, in_tool_call=request.tools is not None)
            saved_bytes += saved.bytes if saved is not None else 0
            picked = session.pick(GREEDY)
            if picked.value() == end_of_turn:
                break
            session.submit(picked)
        slot.sampled(begin)
        slot.answer_returns()
        return saved_bytes

    def _new_tokens(self, prompt: Sequence[int]) -> int:
        """Tokens from the first message on that is not in any earlier timeline as it stands; at least the
        last one, whose logits are asked for."""
        user, known = self._engine.tokenizer.specials.user, 0
        for timeline in self._timelines:
            common = common_prefix(timeline, prompt)
            if common < min(len(timeline), len(prompt)):
                common = max((at for at in range(common) if prompt[at] == user), default=0)
            known = max(known, common)
        return max(1, len(prompt) - known)


def play(requests: Sequence[Request], folder: Path, slots: int) -> list[Turn]:
    """All turns of a session, with a store in `folder`."""
    replies = {request.match: request.reply for request in requests}
    turns = [scripted_turn(reply, match=match) for match, reply in replies.items()]
    engine = ScriptedEngine(parse_script(json.dumps({"turns": turns, "snapshot": _COST})))
    model = ModelIdentity(engine.model_id, engine.quant_bits, engine.fingerprint, engine.name)
    store = KvStore(folder, model, SETTINGS, say=lambda line: None, decode=engine.tokenizer.decode)
    program = Program(engine, slots, store)
    played = [program.turn(request) for request in requests]
    store.close()
    return played


def measure(folder: Path, turns: int) -> list[dict[str, Any]]:
    """Every session, on one slot and on two."""
    results = []
    for name, session in SESSIONS.items():
        for slots in (1, 2):
            own = folder / f"{name.replace(' ', '-')}-{slots}"
            played = [asdict(turn) for turn in play(list(session(turns)), own, slots)]
            results.append({"session": name, "slots": slots, "turns": played})
    return results


def lines(results: list[dict[str, Any]]) -> list[str]:
    """The results as text: a table and a verdict for each session and number of slots."""
    written = []
    for result in results:
        turns = result["turns"]
        written.append(f"{result['session']}, slots: {result['slots']}")
        written.append("  turn              prompt    new  prefilled  MB written  source")
        written += [
            f"  {turn['name']:<16} {turn['prompt']:>7} {turn['new']:>6} {turn['prefilled']:>10} "
            f"{turn['written'] / 1e6:>11.0f}  {turn['source']}"
            for turn in turns
        ]
        written.append(f"  aim: new tokens only: {_verdict(turns)}")
    return written


def _verdict(turns: list[dict[str, Any]]) -> str:
    """A known beginning of fewer tokens than the store keeps may be computed again."""
    over = [turn for turn in turns if turn["prefilled"] > turn["new"]]
    missed = [turn["name"] for turn in over if turn["prompt"] - turn["new"] >= SETTINGS.min_tokens]
    if missed:
        return f"MISSED in {', '.join(missed)}"
    short = sum(turn["prefilled"] - turn["new"] for turn in over)
    return f"met; {short} tokens more, of beginnings too short for a file" if short else "met"
