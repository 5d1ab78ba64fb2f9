"""What bodies of requests come to without a server: a prompt, or a refusal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest

from apps.serve.settings import ServerSettings
from apps.serve.turn_request import Ask, ModelFacts, prepare
from shared.errors import RequestError
from shared.kv.live.tool_memory import ToolMemory
from shared.scripted.vocabulary import tokenizer

BIG: Final = ModelFacts("Tiny", "deepseek-v4-flash", "preview", 393_216, tokenizer())


def rendered(ask: Ask) -> str:
    """The prompt as text."""
    return prepare(ask, "req", BIG, ServerSettings(), ToolMemory(10)).prompt.rendered.decode()


def refusal(ask: Callable[..., Ask], *body: Any, **fields: Any) -> str:
    """Why `ask` refuses what it is given."""
    with pytest.raises(RequestError) as caught:
        ask(*body, **fields)
    assert caught.value.status == 400
    return str(caught.value)
