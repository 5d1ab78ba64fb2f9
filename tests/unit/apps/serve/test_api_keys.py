"""API keys: read from text and files, found in headers, never shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from apps.serve.api_keys import checked_key, is_known, others_can_read, read_key_file, shown_keys
from apps.serve.settings import AccessSettings, ServerSettings
from shared.errors import UsageError


def test_a_file_holds_one_key_a_line(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_bytes(b"\xef\xbb\xbf# for the laptop\n  first-key  \r\n\nsecond/key=\n")
    assert read_key_file(path) == [b"first-key", b"second/key="]


@pytest.mark.parametrize(
    ("content", "wanted"),
    [
        (b"", "no key in it"),
        (b"# only\n\n", "no key in it"),
        (b"ok\nsecret word\n", "line 2: a key is one word"),
        ("gehe\u00edm\n".encode(), "line 1: a key is one word"),
        (b"a\x00b\n", "line 1: a key is one word"),
        (b"\xff\xfe\n", "line 1: a key is one word"),
        (b"x" * (1 << 20) + b"y", "larger than 1 MiB"),
    ],
)
def test_a_bad_file_is_one_line_without_the_key(tmp_path: Path, content: bytes, wanted: str) -> None:
    path = tmp_path / "keys"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=wanted) as caught:
        read_key_file(path)
    assert "secret" not in str(caught.value)
    assert str(path) in str(caught.value)


def test_a_file_that_is_missing_or_a_folder_is_one_line(tmp_path: Path) -> None:
    for path in (tmp_path / "none", tmp_path):
        with pytest.raises(UsageError, match="--api-key-file"):
            read_key_file(path)


@pytest.mark.parametrize("text", ["", "two words", "sch\u00fcssel", "a\nb", "a\x7f"])
def test_what_no_header_carries_is_no_key(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        checked_key(text, "--api-key")
    assert str(caught.value) == "--api-key: a key is one word of printable ASCII characters"


def test_who_else_can_read_a_file(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text("k")
    path.chmod(0o600)
    assert not others_can_read(path)
    path.chmod(0o640)
    assert others_can_read(path)
    path.chmod(0o604)
    assert others_can_read(path)
    assert not others_can_read(tmp_path / "none")


def test_keys_are_found_under_both_names() -> None:
    headers = [
        (b"authorization", b"bEARER  one "),
        (b"accept", b"two"),
        (b"x-api-key", b" three "),
        (b"authorization", b"Basic four"),
        (b"authorization", b"five"),
    ]
    assert list(shown_keys(headers)) == [b"one", b"three"]


def test_a_key_is_known_whole() -> None:
    keys = (b"alpha", b"beta")
    assert is_known(b"alpha", keys)
    assert is_known(b"beta", keys)
    assert not any(
        is_known(shown, keys) for shown in (b"", b"alph", b"alphaa", b"ALPHA", b"\xff", b"alpha beta")
    )
    assert not is_known(b"", ())


def test_settings_do_not_show_their_keys() -> None:
    settings = ServerSettings(access=AccessSettings(keys=frozenset([b"secret"])))
    assert "secret" not in repr(settings)
