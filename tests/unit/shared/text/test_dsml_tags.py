"""One tag at one place: found, none, or more bytes needed."""

from __future__ import annotations

import pytest

from shared.text import marks
from shared.text.dsml_tags import (
    TAG_LIMIT,
    Need,
    Tag,
    TagKind,
    block_tag,
    control_string,
    marked_tag,
    plain_opener,
    plain_tag,
    stray_markup,
    value_closer,
)

M = marks.DSML


def answer(found: object) -> tuple[TagKind, bool, bytes] | object:
    return (found.kind, found.closing, found.raw) if isinstance(found, Tag) else found


@pytest.mark.parametrize(
    ("text", "kind", "closing"),
    [
        (f"<{M}tool_calls>", TagKind.WRAPPER, False),
        (f"<{M}tool_ccalls>", TagKind.WRAPPER, False),
        (f"<{M} calls>", TagKind.WRAPPER, False),
        (f"</{M}inv>", TagKind.INVOKE, True),
        (f'<{M}invoke name="x">', TagKind.INVOKE, False),
        (f"</{M}parameter>", TagKind.PARAMETER, True),
        ("</｜｜DSML｜｜parameter>", TagKind.PARAMETER, True),
        ("<DSML｜invoke>", TagKind.INVOKE, False),
        ("<｜DSMLinvoke>", TagKind.INVOKE, False),
        ("<|DSML|invoke>", TagKind.INVOKE, False),
        ("< / ｜ DSML ｜ invoke>", TagKind.INVOKE, True),
        (f"<{M}/parameter>", TagKind.PARAMETER, True),
        (f"<{M} / parameter>", TagKind.PARAMETER, True),
    ],
)
def test_marked_spellings(text: str, kind: TagKind, closing: bool) -> None:
    data = text.encode()
    assert answer(marked_tag(data + b"tail>", 0)) == (kind, closing, data)
    assert answer(stray_markup(b"x" + data, 1)) == (kind, closing, data)
    for end in range(1, len(data)):
        assert marked_tag(data[:end], 0) is Need.MORE, data[:end]
    if closing:
        assert answer(value_closer(data, 0, ())) == (kind, closing, data)
    else:
        assert value_closer(data, 0, ()) is None


@pytest.mark.parametrize(
    "text",
    [
        "<DSML>",
        "<｜DSML｜>",
        "<｜｜｜DSML｜x>",
        "<  ｜DSML｜x>",
        "<｜dsml｜x>",
        "<｜DSML｜1>",
        "<｜D｜x>",
        "<b>",
        "x",
    ],
)
def test_not_marked(text: str) -> None:
    assert marked_tag(text.encode(), 0) is None


def test_length_limit() -> None:
    for length in (TAG_LIMIT, TAG_LIMIT + 1):
        head = f'<{M}invoke name="'.encode()
        data = head + b"x" * (length - len(head) - 2) + b'">'
        assert len(data) == length
        assert isinstance(marked_tag(data, 0), Tag) is (length == TAG_LIMIT)
        assert (marked_tag(data[:-1], 0) is Need.MORE) is (length == TAG_LIMIT)
        plain = b"<" + b"x" * (length - 2) + b">"
        assert isinstance(plain_tag(plain, 0), Tag) is (length == TAG_LIMIT)


def test_unfinished_counts_as_finished_at_the_end() -> None:
    tag = marked_tag(f'<{M}invoke name="a'.encode(), 0, final=True)
    assert isinstance(tag, Tag)
    assert tag.name is None
    assert isinstance(marked_tag(f"</{M}p".encode(), 0, final=True), Tag)


@pytest.mark.parametrize(
    ("attributes", "name", "is_string"),
    [
        ('name="a" string="true"', "a", True),
        ('string="false" name="a&lt;b&gt;&quot;&amp;lt;&apos;&nbsp;"', "a<b>\"&lt;'&nbsp;", False),
        ('string="maybe" filename="b"', None, True),
        ('name=""', None, None),
        ("name='x'", None, None),
        ('x name="é"', "é", None),
    ],
)
def test_attributes(attributes: str, name: str | None, is_string: bool | None) -> None:
    tag = marked_tag(f"<{M}parameter {attributes}>".encode(), 0)
    assert isinstance(tag, Tag)
    assert (tag.name, tag.is_string) == (name, is_string)


@pytest.mark.parametrize("text", marks.ALL)
def test_control_strings(text: str) -> None:
    data = text.encode()
    assert answer(control_string(b"a" + data, 1)) == (TagKind.CONTROL, False, data)
    for end in range(1, len(data)):
        assert control_string(data[:end], 0) is Need.MORE


@pytest.mark.parametrize(
    ("text", "kind", "closing"),
    [
        ("<tool_calls>", TagKind.WRAPPER, False),
        ("</function_calls>", TagKind.WRAPPER, True),
        ('<invoke name="x">', TagKind.INVOKE, False),
        ("</function>", TagKind.INVOKE, True),
        ("<function>\n<name> bash </name>", TagKind.INVOKE, False),
        ("</parameter>", TagKind.PARAMETER, True),
        ("<task>", TagKind.FOREIGN, False),
        ("<invoked>", TagKind.FOREIGN, False),
    ],
)
def test_plain_tags(text: str, kind: TagKind, closing: bool) -> None:
    data = text.encode()
    assert answer(plain_tag(data, 0)) == (kind, closing, data)
    assert answer(block_tag(data, 0)) == (kind, closing, data)
    for end in range(1, len(data)):
        assert plain_tag(data[:end], 0) is Need.MORE, data[:end]


def test_function_without_a_name_is_foreign() -> None:
    for text in ("<function> x", "<function><nam>", "<function><name>a<b", "<function><name>a>b</name>"):
        assert answer(plain_tag(text.encode(), 0)) == (TagKind.FOREIGN, False, b"<function>")
    tag = plain_tag(b"<function><name>a&amp;b</name>", 0)
    assert isinstance(tag, Tag)
    assert tag.name == "a&b"


def test_plain_opener() -> None:
    def opener(text: str) -> object:
        return answer(plain_opener(text.encode(), 0, lambda name: name == "x"))

    assert opener('<invoke name="x">') == (TagKind.INVOKE, False, b'<invoke name="x">')
    assert opener('<tool_calls>\n <invoke name="any">') == (TagKind.WRAPPER, False, b"<tool_calls>")
    assert opener(f"<function_calls><{M}invoke>") == (TagKind.WRAPPER, False, b"<function_calls>")
    for more in ("<", "<inv", '<invoke name="x"', "<tool_calls>", "<tool_calls>\n<", "<tool_calls><invoke"):
        assert opener(more) is Need.MORE, more
    for none in (
        *("<b", "</invoke>", "<invoke>", '<invoke name="y">', "<tool_calls> x", "<tool_calls></tool_calls>"),
        *("<tool_callsx>", "<function>x", "<tool_calls>" + " " * 2000),
    ):
        assert opener(none) is None, none


def test_value_closers() -> None:
    plain = (b"</parameter>",)
    assert answer(value_closer(b"</parameter>", 0, plain)) == (TagKind.PARAMETER, True, b"</parameter>")
    assert value_closer(b"</par", 0, plain) is Need.MORE
    assert value_closer(b"</par", 0, plain, final=True) is None
    for none in (b"</invoke>", b"</d", b"<d", b"< d"):
        assert value_closer(none, 0, plain) is None
