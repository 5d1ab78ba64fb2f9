"""What turns do to the transcript and to the live state."""

import pytest

from apps.chat.answer import Answerer
from apps.chat.conversation import Conversation
from apps.chat.settings import ChatSettings
from shared.errors import Cancelled, ContextFullError, EngineFault
from shared.sampling import GREEDY
from tests.support import consoles
from tests.support.scripts import scripted, turn


def never():
    return False


def _conversation(*turns, context=2000, effort="high", **fields):
    engine = scripted(*turns, **fields)
    settings = ChatSettings(context, "sys", effort, GREEDY, 100)
    answerer = Answerer(engine, out=consoles.file().console, err=consoles.file().console)
    return Conversation(engine, settings, answerer), engine


def test_turns_extend_one_timeline():
    conversation, engine = _conversation(turn("A.", "</think>", "B"), turn("C"))
    conversation.send("one", never)
    length = len(conversation)
    answer = conversation.send("two", never)
    # Everything but the end token, which the session has not seen yet, is still there.
    assert answer.statistics.reused == length - 1
    text = engine.tokenizer.decode(conversation.last_prompt).decode()
    first = "one<｜Assistant｜><think>A.</think>B<｜end▁of▁sentence｜>"
    assert f"{first}<｜User｜>two<｜Assistant｜><think>" in text
    assert conversation.turns == 2
    assert conversation.total.generated == 4 + 1


def test_a_partial_answer_is_closed_and_the_conversation_goes_on():
    wishes = iter([False] * 4 + [True] * 9)
    conversation, engine = _conversation(turn(*"abcdefgh"), turn("C"), prefill_chunk=500)
    answer = conversation.send("one", lambda: next(wishes))
    assert answer.cause == "cancelled"
    kept = engine.tokenizer.decode(answer.tokens).decode()
    assert 0 < len(kept) < 8
    conversation.send("two", never)
    prompt = engine.tokenizer.decode(conversation.last_prompt).decode()
    assert f"<think>{kept}<｜end▁of▁sentence｜><｜User｜>two" in prompt


def test_an_interrupted_prefill_leaves_the_transcript_and_keeps_the_prefix():
    conversation, _ = _conversation(turn("A"), turn("B"), prefill_chunk=4)
    conversation.send("one", never)
    before = len(conversation)
    wishes = iter([False, False, False, True])
    with pytest.raises(Cancelled):
        conversation.send("a rather long second message", lambda: next(wishes, True))
    assert len(conversation) == before
    again = conversation.send("a rather long second message", never)
    assert again.statistics.reused > before


def test_another_message_after_an_interrupted_one_goes_on_from_the_last_whole_turn():
    conversation, _ = _conversation(turn("A"), turn("B"), prefill_chunk=4)
    conversation.send("one", never)
    before = len(conversation)
    wishes = iter([False, False, False, True])
    with pytest.raises(Cancelled):
        conversation.send("a rather long second message", lambda: next(wishes, True))
    other = conversation.send("something else", never)
    assert other.statistics.reused == before - 1


def test_an_interrupt_before_the_first_token_leaves_no_trace():
    conversation, _ = _conversation(turn("A"), turn("B"), prefill_chunk=500)
    conversation.send("one", never)
    before = len(conversation)
    done = []
    with pytest.MonkeyPatch.context() as patch:
        session_type = type(conversation._session)
        sync = session_type.sync

        def noted(self, *arguments, **keywords):
            result = sync(self, *arguments, **keywords)
            done.append(True)
            return result

        patch.setattr(session_type, "sync", noted)
        answer = conversation.send("two", lambda: bool(done))
    assert (answer.cause, answer.tokens) == ("cancelled", [])
    assert len(conversation) == before
    assert conversation.turns == 1


def test_a_failed_turn_rolls_back_and_the_next_one_works():
    failing = turn("abc", fail={"at": "decode", "after": 0})
    conversation, _ = _conversation(turn("A"), failing, turn("B"))
    conversation.send("one", never)
    before = len(conversation)
    with pytest.raises(EngineFault):
        conversation.send("two", never)
    assert len(conversation) == before
    assert conversation.send("three", never).cause == "eos"


def test_a_message_too_long_for_the_context_rolls_back():
    conversation, _ = _conversation(turn("A"), context=560)
    with pytest.raises(ContextFullError):
        conversation.send("x" * 100, never)
    assert conversation.send("y", never).cause == "eos"


def test_another_context_size_keeps_the_transcript():
    conversation, _ = _conversation(turn("A"), turn("B"))
    conversation.send("one", never)
    length = len(conversation)
    conversation.resize(1000)
    assert (conversation.context, len(conversation)) == (1000, length)
    answer = conversation.send("two", never)
    assert answer.statistics.reused == 0
    assert answer.statistics.prefilled > length
    with pytest.raises(ContextFullError):
        conversation.resize(length)
    assert conversation.context == 1000


def test_a_context_that_cannot_be_opened_leaves_the_old_one(monkeypatch):
    conversation, engine = _conversation(turn("A"), turn("B"))
    conversation.send("one", never)
    before = conversation.context
    opened = engine.open_session

    def open_session(context):
        if context > before:
            raise RuntimeError("no room")
        return opened(context)

    monkeypatch.setattr(engine, "open_session", open_session)
    with pytest.raises(RuntimeError, match="no room"):
        conversation.resize(before + 1)
    assert conversation.context == before
    conversation.forget_state()
    assert conversation.send("two", never).cause == "eos"


def test_switching_effort_keeps_what_still_matches():
    conversation, engine = _conversation(turn("A"), turn("B"), turn("C"))
    conversation.send("one", never)
    length = len(conversation)
    assert engine.effort_profile == "official"
    conversation.set_effort("low")
    # The official high effort has a text and low has none: everything behind the head changes place.
    assert conversation.send("two", never).statistics.reused == 0
    assert len(conversation) < length + 100
    low = len(conversation)
    conversation.set_effort("none")
    # Neither low nor no thinking has a text: the state stays.
    assert conversation.send("three", never).statistics.reused == low - 1
    assert conversation.last_prompt[-1] == engine.tokenizer.specials.think_end


def test_forgotten_state_costs_a_prefill_and_nothing_else():
    conversation, _ = _conversation(turn("A"), turn("B"))
    conversation.send("one", never)
    conversation.forget_state()
    assert conversation.send("two", never).statistics.reused == 0
