"""Typed lines survive the program: 512 of them, readable by their owner only."""

import stat

from hypothesis import given
from hypothesis import strategies as st

from apps.chat.history import HISTORY_ENTRIES, PromptHistory, history_path


def _entries(path):
    return list(PromptHistory(path).load_history_strings())


def test_entries_come_back_newest_first_in_a_private_file(tmp_path):
    path = tmp_path / "data" / "history"
    history = PromptHistory(path)
    history.store_string("one")
    history.store_string("two\nlines \u2028 and a separator")
    assert _entries(path) == ["two\nlines \u2028 and a separator", "one"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [entry.name for entry in path.parent.iterdir()] == ["history"]


def test_only_the_newest_are_kept(tmp_path):
    history = PromptHistory(tmp_path / "history")
    for number in range(HISTORY_ENTRIES + 3):
        history.store_string(str(number))
    assert _entries(tmp_path / "history") == [str(n) for n in range(HISTORY_ENTRIES + 2, 2, -1)]


@given(st.binary(max_size=200))
def test_a_damaged_file_is_no_reason_to_stop(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("history") / "history"
    path.write_bytes(content)
    PromptHistory(path).store_string("new")
    assert _entries(path)[0] == "new"


def test_a_history_that_cannot_be_written_stays_in_memory(tmp_path):
    (tmp_path / "file").touch()
    history = PromptHistory(tmp_path / "file" / "history")
    history.store_string("kept")
    assert list(history.load_history_strings()) == ["kept"]


def test_a_history_that_cannot_be_replaced_leaves_nothing_behind(tmp_path):
    (tmp_path / "history").mkdir()
    history = PromptHistory(tmp_path / "history")
    history.store_string("kept")
    assert list(history.load_history_strings()) == ["kept"]
    assert [entry.name for entry in tmp_path.iterdir()] == ["history"]


def test_two_chats_keep_each_others_lines(tmp_path):
    one, two = PromptHistory(tmp_path / "history"), PromptHistory(tmp_path / "history")
    one.store_string("from one")
    two.store_string("from two")
    assert _entries(tmp_path / "history") == ["from two", "from one"]


def test_of_a_giant_file_the_newest_lines_are_read(tmp_path):
    path = tmp_path / "history"
    path.write_text('"old"\n' + '"' + "x" * 1000 + '"\n' + "\n" * (16 << 20) + '"new"\n')
    assert _entries(path) == ["new"]


def test_a_pasted_document_is_not_stored(tmp_path):
    PromptHistory(tmp_path / "history").store_string("x" * 20_001)
    assert _entries(tmp_path / "history") == []


def test_where(monkeypatch, tmp_path):
    assert history_path() == tmp_path / "history"
    monkeypatch.delenv("DS4_HISTORY")
    assert history_path().parts[-2:] == ("ds4", "history")
