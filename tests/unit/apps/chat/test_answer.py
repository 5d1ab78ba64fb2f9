"""One answer: what is shown, counted and said about its end."""

import pytest

from apps.chat.answer import Answer, Answerer, ending_note
from apps.chat.settings import ChatSettings
from apps.chat.statistics import TurnStatistics
from shared.errors import Cancelled, ContextFullError
from shared.sampling import GREEDY, Sampling
from tests.support import consoles
from tests.support.scripts import scripted, turn

SETTINGS = ChatSettings(context=200, system="", effort="high", sampling=GREEDY, max_tokens=50)
LARGER = "--ctx (or /ctx) makes it larger"


class Clock:
    """Advances one second at every reading."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        self.now += 1.0
        return self.now


class Bench:
    def __init__(self, *turns, context=200, **fields):
        self.engine = scripted(*turns, **fields)
        self.session = self.engine.open_session(context)
        self.out, self.err = consoles.file(), consoles.file()
        self.answerer = Answerer(self.engine, out=self.out.console, err=self.err.console, clock=Clock())

    def prompt(self, text, *, thinking=False):
        specials = self.engine.tokenizer.specials
        mark = specials.think if thinking else specials.think_end
        words = self.engine.tokenizer.encode_text(text)
        return [specials.bos, specials.user, *words, specials.assistant, mark]

    def answer(self, text="hi", *, thinking=False, settings=SETTINGS, cancelled=lambda: False):
        prompt = self.prompt(text, thinking=thinking)
        return self.answerer.answer(
            self.session, prompt, settings, thinking=thinking, seed=None, cancelled=cancelled
        )


def test_an_answer_is_shown_and_counted():
    bench = Bench(turn("Hel", "lo"))
    answer = bench.answer()
    assert bench.out.text == "Hello\n"
    assert bench.err.text == "prefill 6 tokens: 6/6 (100.0%)\n"
    assert (answer.cause, answer.thinking_only) == ("eos", False)
    assert bench.engine.tokenizer.decode(answer.tokens) == b"Hello"
    figures = answer.statistics
    assert (figures.reused, figures.prefilled, figures.generated) == (0, 6, 5)
    assert figures.prefill_seconds > 0
    assert figures.generation_seconds > 0


def test_a_think_mark_split_over_tokens_is_never_shown():
    bench = Bench(turn("I ", "see.", "</thi", "nk>", "Four."))
    bench.answer(thinking=True)
    assert bench.out.text == "I see.\nFour.\n"


def test_the_think_mark_ends_thinking_and_its_line():
    bench = Bench(turn("I see.", "</think>", "Four."))
    answer = bench.answer(thinking=True)
    assert bench.out.text == "I see.\nFour.\n"
    assert not answer.thinking_only


def test_control_text_is_never_shown_without_thinking_either():
    bench = Bench(turn("a", "</think>", "b", "<｜User｜>", "c"))
    bench.answer()
    assert "<" not in bench.out.text
    assert bench.out.text.startswith("a")


@pytest.mark.parametrize("thinking", [False, True])
def test_characters_split_over_tokens_stay_whole(thinking):
    bench = Bench(turn({"hex": "F09F"}, {"hex": "9A"}, {"hex": "A9"}, {"hex": "E4B8"}, {"hex": "AD"}))
    bench.answer(thinking=thinking)
    assert bench.out.text == "🚩中\n".replace("🚩", "\U0001f6a9")


def test_only_the_new_suffix_is_prefilled():
    bench = Bench(turn("one"), turn("two"))
    specials = bench.engine.tokenizer.specials
    first = bench.prompt("hi")
    answer = bench.answer("hi")
    longer = [*first, *answer.tokens, specials.eos, specials.user, 5, specials.assistant, specials.think_end]
    second = bench.answerer.answer(
        bench.session, longer, SETTINGS, thinking=False, seed=None, cancelled=lambda: False
    )
    assert second.statistics.reused == len(first) + len(answer.tokens)
    assert second.statistics.prefilled == 5


def test_the_budget_and_the_context_end_an_answer():
    short = ChatSettings(context=200, system="", effort="high", sampling=GREEDY, max_tokens=3)
    bench = Bench(turn("abcdefgh"))
    answer = bench.answer(settings=short)
    assert (bench.out.text, answer.cause, len(answer.tokens)) == ("abc\n", "length", 3)
    bench = Bench(turn("abcdefgh"), context=10)
    answer = bench.answer()
    # 6 prompt tokens in a context of 10: room for 4, one of which stays for the end token.
    assert (bench.out.text, answer.cause) == ("abc\n", "length")


def test_a_prompt_that_does_not_fit_is_refused():
    bench = Bench(turn("x"), context=6)
    with pytest.raises(ContextFullError, match="the prompt has 6 tokens but the context holds 6"):
        bench.answer()


def test_cancelled_while_generating_keeps_what_came():
    wishes = iter([False] * 4 + [True] * 9)
    bench = Bench(turn(*"abcdefgh"), prefill_chunk=100)
    answer = bench.answer(cancelled=lambda: next(wishes))
    assert answer.cause == "cancelled"
    assert bench.out.text == "abcdefgh"[: len(answer.tokens)] + "\n"
    assert 0 < len(answer.tokens) < 8


def test_cancelled_while_prefilling_keeps_the_steps_that_are_done():
    wishes = iter([False, False, True])
    bench = Bench(turn("abc"), prefill_chunk=2)
    with pytest.raises(Cancelled):
        bench.answer(cancelled=lambda: next(wishes))
    assert 0 < bench.session.position < 6


def test_the_default_sampler_runs_unless_asked_otherwise():
    even = {"logits": {"a": 1.0, "b": 1.0, "c": 1.0, "d": 1.0}}
    bench = Bench(turn(*[even] * 40))
    sampled = ChatSettings(
        context=200, system="", effort="high", sampling=Sampling(), max_tokens=40, seed=None
    )
    bench.answer(settings=sampled)
    assert len(set(bench.out.text.strip())) > 1
    bench = Bench(turn(*[even] * 40))
    bench.answer(settings=SETTINGS)
    assert bench.out.text == "a" * 40 + "\n"


@pytest.mark.parametrize(
    ("tokens", "thinking_only", "note"),
    [
        (50, False, "stopped at the limit of 50 tokens: -n raises it"),
        (50, True, "stopped at the limit of 50 tokens while still thinking: -n raises it"),
        (9, False, "stopped: the context of 20 tokens is full, " + LARGER),
        (
            9,
            True,
            "stopped while still thinking: the context of 20 tokens is full, --ctx (or /ctx) makes it larger",
        ),
    ],
)
def test_an_answer_cut_short_says_why(tokens, thinking_only, note):
    answer = Answer([1] * tokens, "length", thinking_only, TurnStatistics())
    assert ending_note(answer, SETTINGS, 20) == note
    assert ending_note(Answer([1], "eos", False, TurnStatistics()), SETTINGS, 20) is None


def test_a_fixed_seed_differs_by_turn_only():
    settings = ChatSettings(200, "", "high", Sampling(), 10, seed=7)
    assert [settings.seed_of_turn(n) for n in range(3)] == [7, 8, 9]
    assert SETTINGS.seed_of_turn(3) is None
