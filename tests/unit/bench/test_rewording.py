"""Other wordings in training: they keep what decides, and never become a question that is kept back."""

from __future__ import annotations

import random
import re
from collections import Counter

from bench.embedded_model import engine_talk, rewording
from bench.embedded_model.split import Split


def _lines(kind: str) -> list[str]:
    lines = rewording.REWORDINGS.read_text(encoding="utf-8").splitlines()
    return [line.removeprefix(f"{kind} ") for line in lines if line.startswith(f"{kind} ")]


def test_the_file_holds_ways_wraps_and_groups_of_different_words() -> None:
    for kind in ("way", "wrap"):
        assert len(_lines(kind)) >= 40
        assert all(text.count("{}") == 1 for text in _lines(kind))
    words = Counter(word.strip() for group in _lines("like") for word in group.split("|"))
    assert max(words.values()) == 1
    assert all(re.fullmatch("[a-z]+", word) for word in words)


def test_a_wording_comes_in_many_forms() -> None:
    source = random.Random(1)
    forms = {rewording.reworded(source, "How do I start the server?") for _ in range(300)}
    assert len(forms) > 100
    assert "launch" in " ".join(forms)
    assert sum("server" in form.lower() for form in forms) > 0.8 * len(forms)  # the others have a slip in it


def test_commands_flags_and_what_follows_an_article_stay() -> None:
    source = random.Random(2)
    asked = "May I /quit or use --start of docs/flags.md in a conversation with an easiest start?"
    for _ in range(200):
        text = rewording.reworded(source, asked).lower()
        assert "/quit" in text
        assert "--start" in text
        assert "docs/flags.md" in text
        assert "dialogue" not in text
        assert "simplest" not in text


def test_little_words_may_be_missing_but_never_the_others() -> None:
    source = random.Random(3)
    assert all("port" in rewording.reworded(source, "Is it the port?").lower() for _ in range(300))
    assert {rewording.reworded(source, "Is it me?").lower().rstrip("?") for _ in range(300)} == {"is it me"}
    clipped = {rewording.reworded(source, "Where is the KV disk?") for _ in range(300)}
    assert "Where KV disk?" in clipped
    assert all("kv disk" in text.lower() for text in clipped)


def test_a_slip_changes_one_long_word_a_little() -> None:
    source = random.Random(5)
    forms = {rewording.reworded(source, "my quantity").lower() for _ in range(400)}
    words = {form.removeprefix("my ") for form in forms}
    assert {"qunatity", "quanttity", "quanity"} <= words
    assert all(word.startswith("q") and 7 <= len(word) <= 9 for word in words)


def test_a_slip_never_spells_a_name() -> None:
    source = random.Random(6)
    forms = {rewording.reworded(source, "my reset").lower() for _ in range(400)}
    assert {"my rseet", "my reste"} <= forms
    assert "my rese" not in forms


def test_no_longer_line_or_other_way_is_a_kept_back_wording() -> None:
    """What comes out by itself; `engine_talk` takes the wording as it stands where this fails."""
    asked = [text for topic in engine_talk.topics() for text in topic.wordings[Split.TRAIN]]
    longer = [wrap.format(text) for text in asked for wrap in _lines("wrap")]
    leaking = {text for text in [*asked, *longer] if engine_talk.is_kept_back(text)}
    assert not leaking & set(asked)
    assert len(leaking) < 10
    source = random.Random(4)
    for wording in {text.partition(". ")[2] or text.partition("! ")[2] for text in leaking}:
        assert not any(engine_talk.is_kept_back(engine_talk.varied(source, wording)) for _ in range(2000))
