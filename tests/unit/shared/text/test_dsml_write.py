"""The canonical spelling of tool calls."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.text.dsml_write import canonical_block, write_block
from shared.text.messages import ToolCall
from shared.text.segments import SegmentKind, join

CLOSE = "</｜DSML｜parameter>"
_PARAMETER = re.compile(
    r'<｜DSML｜parameter name="([^"]*)" string="(true|false)">(.*?)</｜DSML｜parameter>\n', re.DOTALL
)


def parameters(arguments: str) -> list[tuple[str, str, str]]:
    """(name, string, value) of each parameter as it stands in the block."""
    block = canonical_block([ToolCall("c", "f", arguments)]).decode()
    head, tail = (
        '\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name="f">\n',
        "</｜DSML｜invoke>\n</｜DSML｜tool_calls>",
    )
    assert block.startswith(head)
    assert block.endswith(tail)
    inner = block[len(head) : -len(tail)]
    assert _PARAMETER.sub("", inner) == ""
    return _PARAMETER.findall(inner)


def test_two_calls() -> None:
    calls = [ToolCall("1", "f", '{"b": "x<y", "a": [1, 2]}'), ToolCall("2", "g", "{}")]
    assert canonical_block(calls).decode() == (
        "\n\n<｜DSML｜tool_calls>\n"
        '<｜DSML｜invoke name="f">\n'
        '<｜DSML｜parameter name="b" string="true">x<y</｜DSML｜parameter>\n'
        '<｜DSML｜parameter name="a" string="false">[1,2]</｜DSML｜parameter>\n'
        "</｜DSML｜invoke>\n"
        '<｜DSML｜invoke name="g">\n'
        "</｜DSML｜invoke>\n"
        "</｜DSML｜tool_calls>"
    )


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (' { "n" : 1.50E+07 , "m":-0 } ', [("n", "false", "1.50E+07"), ("m", "false", "-0")]),
        (
            '{"big": 123456789012345678901234567890.10}',
            [("big", "false", "123456789012345678901234567890.10")],
        ),
        ('{"a":1,"b":2,"a":"x"}', [("a", "false", "1"), ("b", "false", "2"), ("a", "true", "x")]),
        (
            '{"o": {"k y": [1, {"z": " s p "}], "e": {}}}',
            [("o", "false", '{"k y":[1,{"z":" s p "}],"e":{}}')],
        ),
        (
            '{"t": true, "f": false, "0": null}',
            [("t", "false", "true"), ("f", "false", "false"), ("0", "false", "null")],
        ),
        ('{"": ""}', [("", "true", "")]),
        (r'{"s": "line\n\"q\" \\ \u00e9 \ud83e\udd8a /\/"}', [("s", "true", 'line\n"q" \\ é 🦊 //')]),
        ('{"s": "<b>&amp;</b>"}', [("s", "true", "<b>&amp;</b>")]),
        (r'{"j": ["\u00e9 \"} , : {", "\\"]}', [("j", "false", r'["\u00e9 \"} , : {","\\"]')]),
        ('{"a:b,{": 1}', [("a:b,{", "false", "1")]),
        (r'{"<&\">": 1}', [("&lt;&amp;&quot;&gt;", "false", "1")]),
    ],
)
def test_members(arguments: str, expected: list[tuple[str, str, str]]) -> None:
    assert parameters(arguments) == expected


@pytest.mark.parametrize("arguments", ["", " \n", "{}", " { } "])
def test_no_arguments_no_parameter(arguments: str) -> None:
    assert parameters(arguments) == []


@pytest.mark.parametrize(
    "arguments",
    [
        "[1]",
        '"text"',
        "1",
        "null",
        "ls -la",
        '{"a":1',
        '{"a":1} x',
        '{"a":NaN}',
        '{"a":-Infinity}',
        "{'a':1}",
        '{"a":"\n"}',
        "[" * 100_000,
    ],
)
def test_what_is_no_object_becomes_one_string(arguments: str) -> None:
    assert parameters(arguments) == [("arguments", "true", arguments)]


def test_a_number_of_any_length_stays_a_number() -> None:
    assert parameters('{"n": ' + "9" * 10_000 + "}") == [("n", "false", "9" * 10_000)]


def test_a_closing_tag_inside_a_value_is_escaped() -> None:
    assert parameters(json.dumps({"s": f"a{CLOSE}b"})) == [("s", "true", "a&lt;/｜DSML｜parameter>b")]
    assert parameters(f"raw {CLOSE}") == [("arguments", "true", "raw &lt;/｜DSML｜parameter>")]
    (written,) = parameters(json.dumps({"j": [f"a{CLOSE}b"]}, ensure_ascii=False))
    assert written == ("j", "false", r'["a\u003c/｜DSML｜parameter>b"]')
    assert json.loads(written[2]) == [f"a{CLOSE}b"]


@pytest.mark.parametrize("arguments", [r'{"s": "a\ud800b"}', '{"s": "a\udc00b"}'])
def test_lone_surrogates_become_the_replacement_character(arguments: str) -> None:
    assert parameters(arguments) == [("s", "true", "a\ufffdb")]


def test_a_name_is_escaped() -> None:
    block = canonical_block([ToolCall("c", '<a & "b">', "")]).decode()
    assert '<｜DSML｜invoke name="&lt;a &amp; &quot;b&quot;&gt;">\n' in block


def test_names_keys_and_values_are_client_text() -> None:
    hostile = "｜DSML｜"
    segments = write_block(
        [ToolCall("c", hostile, json.dumps({hostile: hostile, "k": [hostile]}, ensure_ascii=False))]
    )
    assert (
        join(s for s in segments if s.kind is SegmentKind.TEXT).decode()
        == f'{hostile}{hostile}{hostile}k["{hostile}"]'
    )


_JSON: Any = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


@given(
    value=st.dictionaries(
        st.text(max_size=4).filter(lambda key: not set(key) & set('&<>"')), _JSON, max_size=4
    ),
    ascii_only=st.booleans(),
    indent=st.sampled_from([None, 0, 2]),
)
def test_the_written_values_are_the_given_ones(
    value: dict[str, Any], ascii_only: bool, indent: int | None
) -> None:
    written = parameters(json.dumps(value, ensure_ascii=ascii_only, indent=indent))
    assert [key for key, _, _ in written] == list(value)
    for (_, string, text), given_value in zip(written, value.values(), strict=True):
        assert (string == "true") == isinstance(given_value, str)
        assert (text if string == "true" else json.loads(text)) == given_value
        if string == "false":
            assert text == json.dumps(given_value, ensure_ascii=ascii_only, separators=(",", ":"))
