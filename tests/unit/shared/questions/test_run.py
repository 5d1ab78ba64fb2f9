"""Asking questions of scripted and tiny engines: budgets, verdicts, what a watcher is told."""

from dataclasses import replace

from shared.questions.question import Question
from shared.questions.run import AskSettings, Watcher, ask, question_tokens
from shared.questions.think_budget import ThinkClose, ThinkLimits
from shared.sampling import GREEDY
from shared.text.events import TextDelta, ThinkingDelta
from tests.support.scripts import scripted, turn

QUESTION = Question("own", "1", "How many?", "42", "integer")
LIMITS = ThinkLimits(tokens=40, soft=20, hard=10, rank=3)
SETTINGS = AskSettings(LIMITS, "high", GREEDY, seed=1)


class Recorder(Watcher):
    def __init__(self):
        self.thoughts, self.text, self.counts, self.prefills = "", "", [], []

    def prefill(self, done, total):
        self.prefills.append((done, total))

    def token(self, events, generated, thinking):
        for event in events:
            self.thoughts += event.text if isinstance(event, ThinkingDelta) else ""
            self.text += event.text if isinstance(event, TextDelta) else ""
        self.counts.append((generated, thinking))


def _ask(
    engine, question=QUESTION, settings=SETTINGS, *, context=2000, cancelled=lambda: False, watcher=None
):
    session = engine.open_session(context)
    watcher = watcher or Recorder()
    return ask(engine, session, question, settings, watcher=watcher, cancelled=cancelled, clock=lambda: 7.0)


def test_an_answer_is_shown_and_graded():
    watcher = Recorder()
    outcome = _ask(scripted(turn("a", "b", "</think>", "Answer: ", "4", "2")), watcher=watcher)
    assert (outcome.status, outcome.picked, outcome.cause) == ("PASSED", "42", "eos")
    assert outcome.output == "ab</think>Answer: 42"
    assert outcome.generated == len("ab") + 1 + len("Answer: 42")
    assert outcome.close == ThinkClose("natural", index=2, remaining=38)
    assert (watcher.thoughts, watcher.text) == ("ab", "Answer: 42")
    assert watcher.counts[:3] == [(1, True), (2, True), (3, False)]
    assert watcher.prefills[-1] == (outcome.prompt_tokens, outcome.prompt_tokens)


def test_a_wrong_answer_fails():
    outcome = _ask(scripted(turn("</think>", "Answer: 41")))
    assert (outcome.status, outcome.picked) == ("FAILED", "41")


def _thinker(*best):
    """A model that would think for ever; `best` are its likeliest tokens, the best first."""
    logits = {token: float(10 - place) for place, token in enumerate(best)}
    return scripted(turn(*[{"logits": logits}] * 60, "42"))


def test_thinking_is_ended_when_only_the_reserve_is_left():
    outcome = _ask(_thinker("a", "b", "c", "</think>"))
    assert outcome.close == ThinkClose("hard_forced", index=30, remaining=10, rank=4)
    assert outcome.output == "a" * 30 + "</think>" + "a" * 9
    assert (outcome.status, outcome.cause, outcome.generated) == ("FAILED", "length", 40)


def test_thinking_is_ended_earlier_where_its_end_is_likely():
    outcome = _ask(_thinker("a", "b", "</think>"))
    assert outcome.close == ThinkClose("soft_forced", index=20, remaining=20, rank=3)
    strict = AskSettings(replace(LIMITS, rank=2), "high", GREEDY, seed=1)
    assert _ask(_thinker("a", "b", "</think>"), settings=strict).close.kind == "hard_forced"


def test_a_small_context_makes_the_budget_smaller():
    size = _ask(scripted(turn("</think>"))).prompt_tokens
    outcome = _ask(_thinker(*"abcd"), context=size + 1 + 15)
    assert outcome.close == ThinkClose("hard_forced", index=5, remaining=10, rank=5)
    assert outcome.generated == 15
    skipped = _ask(_thinker("a"), context=size + 1 + 10)
    assert (skipped.status, skipped.prompt_tokens, skipped.generated) == ("SKIPPED", size, 0)


def test_without_thinking_nothing_is_forced():
    settings = AskSettings(LIMITS, "none", GREEDY, seed=1)
    outcome = _ask(_thinker("a", "</think>"), settings=settings)
    assert outcome.output == "a" * 40
    assert outcome.close == ThinkClose("none")


def test_a_stopped_question_is_no_failure():
    at_once = _ask(scripted(turn("</think>", "Answer: 42")), cancelled=lambda: True)
    assert (at_once.status, at_once.cause, at_once.output) == ("STOPPED", "cancelled", "")
    watcher = Recorder()
    midway = _ask(
        scripted(turn("</think>", *"Answer: 42")),
        watcher=watcher,
        cancelled=lambda: len(watcher.counts) >= 4,
    )
    assert (midway.status, midway.output) == ("STOPPED", "</think>Ans")


def test_a_question_cannot_hold_control_tokens():
    engine = scripted(turn("x"))
    tokens = question_tokens(
        engine.tokenizer, replace(QUESTION, question="</think>"), "high", engine.effort_profile
    )
    assert tokens.count(engine.tokenizer.specials.think_end) == 0
