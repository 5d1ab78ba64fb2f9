"""How well a model predicts given continuations, each token behind the true ones. Spec: apps §8.4."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from shared.errors import Cancelled, UsageError
from shared.evaluation.manifest import ScoreCase
from shared.power import PowerGovernor
from shared.sampling import GREEDY, choose, token_logprob
from shared.session import CancelCheck, Engine, Session
from shared.text.transcript import Transcript


@dataclass(frozen=True, slots=True)
class EncodedCase:
    """A case as token ids: `prompt` up to the mark behind which the model answers, `targets` its answer."""

    id: str
    prompt: tuple[int, ...]
    targets: tuple[int, ...]

    @property
    def context(self) -> int:
        """The smallest context in which it can be scored: the last target is never evaluated."""
        return len(self.prompt) + len(self.targets)


@dataclass(frozen=True, slots=True)
class CaseScore:
    """`nll` is the sum of the targets' negative log-likelihoods in nats. `first_match`: the likeliest token
    was the first target; `greedy_lcp`: so many targets from the first on were the likeliest token."""

    id: str
    prompt_tokens: int
    target_tokens: int
    nll: float
    first_match: bool
    greedy_lcp: int

    @property
    def avg_nll(self) -> float:
        return self.nll / self.target_tokens


def encode_cases(engine: Engine, cases: Sequence[ScoreCase], context: int) -> list[EncodedCase]:
    """`cases` as the model is to see them: without system text and without thinking. Raises UsageError for
    the first that does not fit `context` tokens."""
    encoded = [_encode(engine, case) for case in cases]
    for case in encoded:
        if case.context > context:
            raise UsageError(
                f"case {case.id!r} has {len(case.prompt)} + {len(case.targets)} tokens but --ctx is "
                f"{context}: give --ctx {max(other.context for other in encoded)}"
            )
    return encoded


def score_case(
    session: Session, case: EncodedCase, power: PowerGovernor, cancelled: CancelCheck
) -> CaseScore:
    """Evaluate one case. Raises Cancelled."""
    session.sync(case.prompt, cancelled=cancelled)
    nll, matched = 0.0, 0
    for done, target in enumerate(case.targets):
        if cancelled():
            raise Cancelled
        began = power.start()
        logits = session.logits()
        nll -= token_logprob(logits, target)
        if matched == done and choose(logits, GREEDY) == target:
            matched += 1
        if done + 1 < len(case.targets):
            session.submit(target)
            power.rest("decode", began, cancelled)
    return CaseScore(case.id, len(case.prompt), len(case.targets), nll, matched > 0, matched)


def score_cases(
    session: Session,
    cases: Sequence[EncodedCase],
    power: PowerGovernor,
    *,
    scored: Callable[[CaseScore], object],
    cancelled: CancelCheck,
) -> list[CaseScore]:
    """Evaluate all cases in order and tell `scored` of each. Raises Cancelled."""
    scores = []
    for case in cases:
        score = score_case(session, case, power, cancelled)
        scored(score)
        scores.append(score)
    return scores


def _encode(engine: Engine, case: ScoreCase) -> EncodedCase:
    transcript = Transcript(engine.tokenizer, effort="none", profile=engine.effort_profile, system="")
    transcript.add_user(case.prompt.decode("utf-8", "replace"))
    transcript.begin_answer()
    return EncodedCase(
        case.id, tuple(transcript.tokens), tuple(engine.tokenizer.encode_text(case.continuation))
    )
