"""Streams of named events as their clients read them."""

from __future__ import annotations

import json
from typing import Any


def named_events(stream: str) -> list[dict[str, Any]]:
    """The data of each event, which must be named as its type says."""
    events = []
    for part in stream.split("\n\n")[:-1]:
        name, data = part.split("\n")
        events.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {events[-1]['type']}"
    return events
