"""Draws the held-out cases of `ds4 eval --suite embedded` from the generator of the embedded model.

`python -m bench.embedded_suite` rewrites the package's file. Their seed is no other run's, and what is held
out is held out by name (see bench/embedded_model/split.py).
"""

from __future__ import annotations

import json
from pathlib import Path

from bench.embedded_model.cases import cases, far_recall
from bench.embedded_model.conversation import Conversation
from shared.abilities.case import AbilityCase, ExpectedAnswer, ExpectedCall, write_cases

FILE = Path(__file__).parents[1] / "apps" / "eval" / "embedded.jsonl.gz"
SEED = 20261130
COUNT = 200
# Tokens between a fact and the question for it, in the embedded model's vocabulary: far outside the window of
# 128 tokens, and near enough to tell where recall ends if it does not reach that far.
DISTANCES = {"recall": (1000, 2000, 4000, 6000), "near recall": (60, 120, 250, 500)}


def suite(count: int = COUNT, seed: int = SEED) -> list[AbilityCase]:
    """`count` cases of each ability, those of recall spread evenly over the distances; near recall is one of
    its own."""
    made = []
    for ability in ("engine", "tools", "numbers"):
        for number, case in enumerate(cases(ability, count, seed), start=1):
            made.append(ability_case(ability, str(number), case.conversation))
    for ability, distances in DISTANCES.items():
        for distance in distances:
            for number, case in enumerate(far_recall(count // len(distances), seed, distance), start=1):
                made.append(ability_case(ability, f"{distance}-{number}", case.conversation))
    return made


def ability_case(ability: str, name: str, talk: Conversation) -> AbilityCase:
    """A conversation of one exchange as a case: what the assistant says in it is what is expected."""
    system, user, *turns = talk.messages
    assert (system.role, user.role) == ("system", "user")
    expected: list[ExpectedAnswer | ExpectedCall] = []
    for position, message in enumerate(turns):
        if message.role != "assistant":
            continue
        if message.tool_calls:
            [call] = message.tool_calls
            result = turns[position + 1].content
            expected.append(ExpectedCall(call.name, json.loads(call.arguments), result))
        else:
            expected.append(ExpectedAnswer(message.content))
    tools = () if talk.tools is None else talk.tools.schemas
    return AbilityCase(ability, name, system.content, user.content, talk.effort, tuple(expected), tools)


if __name__ == "__main__":
    write_cases(FILE, suite())
    print(f"wrote {FILE}: {FILE.stat().st_size} bytes")
