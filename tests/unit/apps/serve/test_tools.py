"""Tools and the choice among them, in the OpenAI family's spellings."""

from __future__ import annotations

from typing import Any

import pytest

from apps.serve.schema.tools import offered_tools, openai_tool_choice, tool_schemas
from apps.serve.turn_request import ToolChoice
from shared.errors import RequestError

_BASH = {"name": "bash", "parameters": {"type": "object"}}


@pytest.mark.parametrize(
    ("sent", "choice"),
    [
        (None, ToolChoice("auto")),
        ("auto", ToolChoice("auto")),
        ("none", ToolChoice("none")),
        ("required", ToolChoice("required")),
        ({"type": "function", "function": {"name": "bash"}}, ToolChoice("named", "bash")),
        ({"type": "function", "name": "bash"}, ToolChoice("named", "bash")),
    ],
)
def test_choices_in_every_spelling(sent: Any, choice: ToolChoice) -> None:
    assert openai_tool_choice(sent) == choice


@pytest.mark.parametrize("sent", ["any", "", {}, {"name": 5}, {"type": "function", "function": "bash"}])
def test_other_choices_are_refused(sent: Any) -> None:
    with pytest.raises(RequestError, match="tool_choice") as refused:
        openai_tool_choice(sent)
    assert refused.value.param == "tool_choice"


def test_wrapped_and_bare_functions_are_the_same_tools() -> None:
    assert tool_schemas([{"type": "function", "function": _BASH}, _BASH]) == [_BASH, _BASH]
    hosted = {"type": "web_search"}
    assert tool_schemas([hosted]) == [hosted]


@pytest.mark.parametrize("tool", [{"type": "function", "function": 5}, {"type": "function"}, {"name": 5}])
def test_functions_without_a_name_are_refused(tool: Any) -> None:
    with pytest.raises(RequestError, match=r"tools\.0"):
        tool_schemas([tool])


def test_nothing_is_offered_without_tools_or_by_choice() -> None:
    offered = offered_tools([_BASH], ToolChoice())
    assert offered is not None
    assert offered.names() == {"bash"}
    assert offered_tools([], ToolChoice()) is None
    assert offered_tools([_BASH], ToolChoice("none")) is None
