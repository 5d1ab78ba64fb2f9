"""`--suite embedded --control NAME`: far recall as the model is, and once more without its far memory."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from apps.eval.ability_suite import FILE, share_line, shares_of
from apps.eval.case_run import ANSWER_TOKENS, ask_cases, context_for
from apps.trace import Trace
from shared.abilities.case import AbilityCase, first_of_each, read_cases
from shared.abilities.controls import DEMANDS, Control, ControllableEngine, shows_memory
from shared.errors import UsageError
from shared.session import CancelCheck, Engine
from shared.text.tokenizer import Tokenizer

ABILITY = "recall"
_PLAIN = "as it is"


@dataclass(frozen=True, slots=True)
class ControlSuite:
    """Cases of far recall, the control that they are put under, and the tokens of an answer."""

    cases: Sequence[AbilityCase]
    control: Control
    tokens: int

    @classmethod
    def read(cls, control: Control, count: int | None, tokens: int | None) -> ControlSuite:
        """`count` cases evenly over all distances, or all."""
        cases = [case for case in read_cases(FILE) if case.ability == ABILITY]
        return cls(first_of_each(cases, count), control, tokens or ANSWER_TOKENS)

    def context_needed(self, tokenizer: Tokenizer) -> int:
        """Enough for the longest case."""
        return context_for(self.cases, self.tokens, tokenizer)

    def run(
        self, engine: Engine, context: int, *, as_json: bool, trace: Trace, cancelled: CancelCheck
    ) -> int:
        """Ask twice and print both shares; returns the exit code: 1 if as much is recalled under the control
        that it was no recall. Raises UsageError for an engine without controls, Cancelled."""
        if not isinstance(engine, ControllableEngine):
            raise UsageError(f"the {engine.backend} backend has no controls: use --backend reference")
        shares = {}
        for name in (_PLAIN, self.control):
            if name == _PLAIN:
                session = engine.open_session(context)
            else:
                session = engine.open_controlled_session(context, self.control)
            results = ask_cases(
                engine,
                session,
                self.cases,
                self.tokens,
                verb=f"asked, {name}",
                trace=trace,
                cancelled=cancelled,
            )
            shares[name] = shares_of(results)
        (plain, asked), (controlled, _) = (found[ABILITY] for found in shares.values())
        passed = shows_memory(self.control, plain, controlled, asked)
        if as_json:
            record = {
                "model": engine.name,
                "backend": engine.backend,
                "control": self.control,
                "shares": {
                    name: {key: {"right": right, "asked": all_} for key, (right, all_) in found.items()}
                    for name, found in shares.items()
                },
                "passed": passed,
            }
            print(json.dumps(record, indent=2))
        else:
            for name, found in shares.items():
                for key, share in found.items():
                    print(f"{share_line(key, *share)}  {name}")
            told = "passed" if passed else "FAILED"
            print(f"{self.control}: {DEMANDS[self.control]} must be right: {told}")
        return 0 if passed else 1
