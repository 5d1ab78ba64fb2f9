"""Where a prompt comes from and which tokens it becomes."""

import io
import os
import threading
from pathlib import Path

import pytest

from apps.prompt import Prompt, read_file, read_prompt, thinking_open
from shared.errors import UsageError
from shared.scripted.vocabulary import tokenizer
from shared.text import marks

TOKENIZER = tokenizer()
SPECIALS = TOKENIZER.specials


def _encode(prompt, *, system="", effort="none"):
    return prompt.encode(TOKENIZER, system=system, effort=effort, profile="preview")


def test_each_source(tmp_path):
    (tmp_path / "text").write_bytes(b"from a file\n")
    (tmp_path / "ids").write_text("[1, 2]")
    assert read_prompt("typed", None, None, None) == Prompt(b"typed")
    assert read_prompt(None, tmp_path / "text", None, None) == Prompt(b"from a file\n")
    assert read_prompt(None, None, tmp_path / "ids", None) == Prompt(tokens=(1, 2))
    assert read_prompt(None, None, None, io.BytesIO(b"piped\n\n")) == Prompt(b"piped\n")
    assert read_prompt(None, None, None, None) is None


def test_a_pipe_is_not_read_when_an_option_names_the_prompt():
    piped = io.BytesIO(b"piped")
    assert read_prompt("typed", None, None, piped) == Prompt(b"typed")
    assert piped.tell() == 0


def test_two_sources_or_an_empty_one_are_refused(tmp_path):
    (tmp_path / "empty").touch()
    with pytest.raises(UsageError, match=r"^-p and --prompt-tokens both give a prompt"):
        read_prompt("a", None, tmp_path / "b", None)
    for empty in (
        ("", None, None, None),
        (None, tmp_path / "empty", None, None),
        (None,) * 3 + (io.BytesIO(b"\n"),),
    ):
        with pytest.raises(UsageError, match=r"is empty$"):
            read_prompt(*empty)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("nonsense", "expected a JSON array"),
        ("[]", "expected a JSON array"),
        ('{"ids": [1]}', "expected a JSON array"),
        ("[" * 100_000, "expected a JSON array"),
        ("[1, 2.5]", "entry 1 is not a token id"),
        ("[true]", "entry 0 is not a token id"),
        ('[1, "2"]', "entry 1 is not a token id"),
        ("[1, [2]]", "entry 1 is not a token id"),
        ("[NaN]", "entry 0 is not a token id"),
    ],
)
def test_a_token_file_that_is_none_is_refused(tmp_path, content, complaint):
    (tmp_path / "ids.json").write_text(content)
    with pytest.raises(UsageError, match=complaint):
        read_prompt(None, None, tmp_path / "ids.json", None)


def test_ids_outside_the_vocabulary_are_refused():
    for token in (-1, TOKENIZER.vocabulary_size, 10**30):
        with pytest.raises(UsageError, match=f"entry 1 is {token}, but the vocabulary has ids 0 to"):
            _encode(Prompt(tokens=(0, token)))


def test_exact_tokens_get_no_template():
    assert _encode(Prompt(tokens=(0, 5, 9)), system="system", effort="high") == [0, 5, 9]


def test_text_becomes_the_user_message():
    s = SPECIALS
    text = TOKENIZER.encode_text
    tokens = _encode(Prompt(b"hi"), system="sys", effort="high")
    assert tokens == [s.bos, *text("sys"), s.user, *text("hi"), s.assistant, s.think]
    assert _encode(Prompt(b"hi")) == [s.bos, s.user, *text("hi"), s.assistant, s.think_end]


def test_a_rendered_transcript_is_taken_as_it_is():
    rendered = f"{marks.BOS}s{marks.USER}u{marks.ASSISTANT}{marks.THINK}"
    expected = TOKENIZER.encode_rendered(rendered)
    assert _encode(Prompt(rendered.encode()), system="ignored", effort="none") == expected
    assert SPECIALS.user in expected


def test_control_strings_in_a_message_stay_text():
    tokens = _encode(Prompt(f"say {marks.EOS}{marks.BOS}".encode()))
    assert SPECIALS.eos not in tokens
    assert tokens.count(SPECIALS.bos) == 1


def test_as_written_recognises_control_strings_and_adds_nothing():
    text = f"a{marks.USER}"
    assert Prompt(text.encode()).as_written(TOKENIZER) == [*TOKENIZER.encode_text("a"), SPECIALS.user]


def test_whether_thinking_is_open():
    s = SPECIALS
    assert thinking_open([s.bos, s.user, 5, s.assistant, s.think], s)
    assert thinking_open([s.bos, s.assistant, s.think, 5, 6], s)
    assert not thinking_open([s.bos, s.user, 5, s.assistant, s.think_end], s)
    assert not thinking_open([s.bos, s.think, 5, s.assistant], s)
    assert not thinking_open([s.bos, 5], s)


def test_files_that_cannot_be_a_prompt(tmp_path):
    cases = ((tmp_path / "none", "No such file"), (tmp_path, "Is a directory"), (Path("/dev/zero"), "device"))
    for path, reason in cases:
        with pytest.raises(UsageError, match=reason):
            read_file(path)


def test_a_pipe_works_as_a_prompt_file(tmp_path):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    writer = threading.Thread(target=fifo.write_bytes, args=(b"[1]",))
    writer.start()
    assert read_file(fifo) == b"[1]"
    writer.join()
