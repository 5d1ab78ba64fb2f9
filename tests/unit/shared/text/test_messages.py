"""What a set of tools says about itself, also when its schemas are odd."""

from __future__ import annotations

from typing import Any

import pytest

from shared.text.messages import ToolSet

READ: dict[str, Any] = {
    "name": "read",
    "parameters": {
        "type": "object",
        "properties": {"path": {"type": "string"}, "n": {}},
        "required": ["path"],
    },
}


def test_names_properties_and_required() -> None:
    tools = ToolSet([READ, {"name": "now"}])
    assert tools.names() == {"read", "now"}
    assert "read" in tools
    assert "write" not in tools
    assert list(tools) == [READ, {"name": "now"}]
    assert len(tools) == 2
    properties = tools.properties("read")
    assert properties is not None
    assert list(properties) == ["path", "n"]
    assert tools.required("read") == {"path"}
    assert tools.properties("now") is None
    assert tools.properties("write") is None
    assert tools.required("now") == tools.required("write") == frozenset()


def test_a_schema_under_its_other_name() -> None:
    tools = ToolSet([{"name": "read", "input_schema": READ["parameters"]}])
    assert tools.required("read") == {"path"}
    assert tools.properties("read") == READ["parameters"]["properties"]


def test_the_first_of_equal_names_counts() -> None:
    assert ToolSet([READ, {"name": "read"}]).required("read") == {"path"}


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"name": 3},
        {"name": "t", "parameters": None},
        {"name": "t", "parameters": []},
        {"name": "t", "parameters": {"properties": ["a"], "required": "a"}},
        {"name": "t", "parameters": {"required": [1, None]}},
    ],
)
def test_odd_schemas_are_tolerated(schema: dict[str, Any]) -> None:
    tools = ToolSet([schema])
    assert tools.properties("t") is None
    assert tools.required("t") == frozenset()
    assert tools.schemas == (schema,)
