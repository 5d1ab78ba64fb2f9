"""Running a case of an ability: the model's turns, greedily, each judged before the next is asked for.

Knows sessions and the decode loop; nothing of screens and files.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from shared.abilities.case import AbilityCase, ExpectedAnswer, ExpectedCall
from shared.errors import Cancelled
from shared.generate import Generation, GenerationSettings
from shared.sampling import GREEDY
from shared.session import CancelCheck, Engine, Session
from shared.text.messages import Message, ToolSet
from shared.text.template import render_chat
from shared.text.tokenizer import Tokenizer
from shared.text.turn import Turn


@dataclass(frozen=True, slots=True)
class CaseResult:
    """`wanted` and `got` are of the first turn that was wrong, or of the last one."""

    case: AbilityCase
    passed: bool
    wanted: str
    got: str
    prompt_tokens: int
    generated: int


def case_tokens(tokenizer: Tokenizer, case: AbilityCase, profile: str) -> list[int]:
    """The prompt of a case's first turn."""
    return _tokens(tokenizer, case, _opening(case), profile)


def run_case(
    engine: Engine, session: Session, case: AbilityCase, max_tokens: int, cancelled: CancelCheck
) -> CaseResult:
    """Run a case to its end or to its first wrong turn, of at most `max_tokens` tokens. Raises Cancelled,
    ContextFullError, EngineFault."""
    messages = _opening(case)
    prompt_tokens, generated = 0, 0
    for number, expected in enumerate(case.expected):
        tokens = _tokens(engine.tokenizer, case, messages, engine.effort_profile)
        prompt_tokens += len(tokens)
        session.sync(tokens, cancelled=cancelled)
        turn, count = _turn(engine, session, case, max_tokens, cancelled)
        generated += count
        right = _judged(expected, turn)
        if not right or number + 1 == len(case.expected):
            break
        assert isinstance(expected, ExpectedCall), "only a call is followed by another turn"
        messages += [
            Message("assistant", turn.content, turn.reasoning, tuple(turn.calls), raw_dsml=turn.raw_block),
            Message("tool", expected.result, tool_call_ids=(turn.calls[0].id,)),
        ]
    return CaseResult(case, right, _shown(expected), _said(turn), prompt_tokens, generated)


def _opening(case: AbilityCase) -> list[Message]:
    return [Message("system", case.system), Message("user", case.user)]


def _tokens(tokenizer: Tokenizer, case: AbilityCase, messages: list[Message], profile: str) -> list[int]:
    tools = ToolSet(case.tools) if case.tools else None
    return tokenizer.encode_segments(render_chat(messages, tools, effort=case.effort, profile=profile))


def _turn(
    engine: Engine, session: Session, case: AbilityCase, max_tokens: int, cancelled: CancelCheck
) -> tuple[Turn, int]:
    turn = Turn(thinking=case.effort != "none", tools=ToolSet(case.tools) if case.tools else None)
    generation = Generation(
        session,
        engine.tokenizer,
        turn,
        GenerationSettings(GREEDY, max_tokens),
        cancelled=cancelled,
        power=engine.power,
    )
    for _ in generation:
        pass
    if generation.cause == "cancelled":
        raise Cancelled
    return turn, len(generation.tokens)


def _judged(expected: ExpectedAnswer | ExpectedCall, turn: Turn) -> bool:
    if isinstance(expected, ExpectedAnswer):
        return not turn.calls and turn.thinking_closed and turn.content.strip() == expected.text
    if len(turn.calls) != 1 or turn.repaired:
        return False
    call = turn.calls[0]
    return call.name == expected.tool and _same(json.loads(call.arguments), expected.arguments)


def _same(found: Any, wanted: dict[str, Any]) -> bool:
    """Equal, the kinds of the values included: 1, 1.0 and true differ in JSON."""
    return json.dumps(found, sort_keys=True) == json.dumps(wanted, sort_keys=True)


def _shown(expected: ExpectedAnswer | ExpectedCall) -> str:
    if isinstance(expected, ExpectedAnswer):
        return expected.text
    return f"{expected.tool}({json.dumps(expected.arguments, sort_keys=True)})"


def _said(turn: Turn) -> str:
    calls = [f"{call.name}({call.arguments})" for call in turn.calls]
    if not turn.thinking_closed:
        return f"(still thinking) {turn.reasoning}"
    return " ".join([*([turn.content.strip()] if turn.content.strip() else []), *calls])
