"""Runs an engine on recorded vectors, and records new ones. Spec: apps §10.

Owns the limits of a comparison. Knows sessions; nothing of files but their cases.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field

import numpy as np

from shared.errors import EngineFault, UsageError
from shared.evaluation.local_vectors import LocalCandidate, LocalCase, PromptMode
from shared.evaluation.official_vectors import MOST_STEPS, Candidate, OfficialCase, OfficialStep
from shared.sampling import TokenLogprob, top_logprobs
from shared.session import CancelCheck, Engine, Progress
from shared.text.tokenizer import Tokenizer
from shared.text.transcript import Transcript

LOCAL_CANDIDATES = 20
MOST_LOGPROB_DELTA = 4.0
# Of so many best tokens this many must be the same: within an engine's rounding, not within another model's.
LEAST_OVERLAP: Mapping[int, int] = {5: 4, 20: 15, 64: 40}
MOST_LOGIT_DELTA = 8.0
_DELTA_OVER = 20
_NOTHING = "no logit is a finite number"


@dataclass
class Verdict:
    """What a case came to: `problems` is empty if it passed, `figures` are for people."""

    id: str
    problems: list[str] = field(default_factory=list)
    figures: dict[str, float] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        return not self.problems


def encode_prompt(engine: Engine, prompt: bytes, mode: PromptMode) -> list[int]:
    """The tokens of a prompt file. `chat` is a user message without system text and thinking."""
    tokenizer = engine.tokenizer
    if mode == "text":
        return tokenizer.encode_text(prompt)
    if mode == "rendered":
        return tokenizer.encode_rendered(prompt)
    transcript = Transcript(tokenizer, effort="none", profile=engine.effort_profile, system="")
    transcript.add_user(prompt.decode("utf-8", "replace"))
    transcript.begin_answer()
    return transcript.tokens


def check_official(
    engine: Engine, case: OfficialCase, prompt: bytes, progress: Progress, cancelled: CancelCheck
) -> Verdict:
    """Answer greedily. At each step the token must have the recorded bytes, and each recorded candidate must
    be among our best 20, with a log probability at most 4 away. After another token the case is over.

    Raises ContextFullError, Cancelled.
    """
    verdict = Verdict(case.id, figures={"max_logprob_delta": 0.0})
    with closing(engine.open_session(case.context)) as session:
        session.sync(encode_prompt(engine, prompt, "chat"), progress, cancelled=cancelled)
        for number, step in enumerate(case.steps):
            best = top_logprobs(session.logits(), LOCAL_CANDIDATES)
            if not best:
                verdict.problems.append(f"step {number}: {_NOTHING}")
                break
            _check_step(engine.tokenizer, number, step, best, verdict)
            if engine.tokenizer.token_bytes(best[0].token) != step.selected:
                break
            if number + 1 < len(case.steps):
                session.submit(best[0].token)
    return verdict


def _check_step(
    tokenizer: Tokenizer, number: int, step: OfficialStep, best: Sequence[TokenLogprob], verdict: Verdict
) -> None:
    ours = {tokenizer.token_bytes(scored.token): scored.logprob for scored in best}
    for data, recorded in step.top:
        if data not in ours:
            verdict.problems.append(f"step {number}: {_shown(data)} is not among the best {LOCAL_CANDIDATES}")
            continue
        delta = abs(ours[data] - recorded)
        verdict.figures["max_logprob_delta"] = max(verdict.figures["max_logprob_delta"], delta)
        if delta > MOST_LOGPROB_DELTA:
            verdict.problems.append(
                f"step {number}: the log probability of {_shown(data)} is {ours[data]:.3f}, "
                f"recorded {recorded:.3f}"
            )
    taken = next(iter(ours))
    if taken != step.selected:
        verdict.problems.append(
            f"step {number}: the best token is {_shown(taken)}, recorded {_shown(step.selected)}"
        )


def check_local(
    engine: Engine, case: LocalCase, prompt: bytes, progress: Progress, cancelled: CancelCheck
) -> Verdict:
    """Compare the logits behind the frontier: the same best token, enough of the same best ones, and the
    logits of the recorded best 20 at most 8 away. Overlaps are judged as far as the record reaches.

    Raises UsageError, Cancelled.
    """
    verdict = Verdict(case.id)
    tokens = _up_to(encode_prompt(engine, prompt, case.mode), case.frontier, case.id)
    with closing(engine.open_session(case.context)) as session:
        session.sync(tokens, progress, cancelled=cancelled)
        logits = session.logits()
    unknown = [best.token for best in case.top if best.token >= logits.size]
    if unknown:
        verdict.problems.append(f"token {unknown[0]} is outside the vocabulary of {logits.size}")
        return verdict
    ours = [scored.token for scored in top_logprobs(logits, max(len(case.top), *LEAST_OVERLAP))]
    if ours[:1] != [case.top[0].token]:
        verdict.problems.append(f"the best token is {ours[:1]}, recorded {case.top[0].token}")
    for count, least in LEAST_OVERLAP.items():
        if count > len(case.top):
            break
        same = len({best.token for best in case.top[:count]} & set(ours[:count]))
        verdict.figures[f"top{count}_overlap"] = same
        if same < least:
            verdict.problems.append(f"of the best {count} tokens {same} are the same, fewer than {least}")
    deltas = [abs(float(logits[best.token]) - best.logit) for best in case.top[:_DELTA_OVER]]
    largest = float(np.max(deltas))  # NaN if one is
    verdict.figures["max_logit_delta"] = largest
    if not largest <= MOST_LOGIT_DELTA:
        verdict.problems.append(f"a logit is {largest:.3f} away, at most {MOST_LOGIT_DELTA:g} may be")
    return verdict


@dataclass(frozen=True, slots=True)
class Recording:
    """What to record of a prompt: `name` is the case's id, `prompt_file` what the file will call it."""

    name: str
    prompt_file: str
    prompt: bytes
    context: int


def record_official(
    engine: Engine, wanted: Recording, steps: int, count: int, progress: Progress, cancelled: CancelCheck
) -> OfficialCase:
    """What the engine answers greedily in at most `steps` tokens, with `count` candidates each; the end token
    is the last. Raises ContextFullError, Cancelled."""
    assert 1 <= steps <= MOST_STEPS
    recorded: list[OfficialStep] = []
    bytes_of = engine.tokenizer.token_bytes
    with closing(engine.open_session(wanted.context)) as session:
        session.sync(encode_prompt(engine, wanted.prompt, "chat"), progress, cancelled=cancelled)
        while True:
            best = _finite(top_logprobs(session.logits(), max(1, count)))
            top = tuple(Candidate(bytes_of(scored.token), scored.logprob) for scored in best[:count])
            recorded.append(OfficialStep(bytes_of(best[0].token), top))
            ended = best[0].token == engine.tokenizer.specials.eos
            if ended or len(recorded) == steps or session.position == session.context:
                return OfficialCase(wanted.name, wanted.context, wanted.prompt_file, tuple(recorded))
            session.submit(best[0].token)


def record_local(
    engine: Engine,
    wanted: Recording,
    mode: PromptMode,
    frontier: int | None,
    count: int,
    progress: Progress,
    cancelled: CancelCheck,
) -> LocalCase:
    """The `count` best logits after `frontier` tokens, or after the whole prompt. Raises UsageError,
    ContextFullError, Cancelled."""
    tokens = encode_prompt(engine, wanted.prompt, mode)
    tokens = _up_to(tokens, len(tokens) if frontier is None else frontier, wanted.name)
    with closing(engine.open_session(wanted.context)) as session:
        session.sync(tokens, progress, cancelled=cancelled)
        best = _finite(top_logprobs(session.logits(), count))
    top = tuple(LocalCandidate(scored.token, scored.logit) for scored in best)
    return LocalCase(wanted.name, mode, wanted.context, len(tokens), wanted.prompt_file, top)


def _finite(best: list[TokenLogprob]) -> list[TokenLogprob]:
    if not best:
        raise EngineFault(f"nothing can be recorded: {_NOTHING}")
    return best


def _up_to(tokens: list[int], frontier: int, name: str) -> list[int]:
    if len(tokens) < frontier:
        raise UsageError(f"case {name!r}: the prompt has {len(tokens)} tokens, fewer than {frontier}")
    return tokens[:frontier]


def _shown(data: bytes) -> str:
    return repr(data.decode("utf-8", "backslashreplace"))
