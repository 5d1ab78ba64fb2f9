"""Conversations with a running server as clients hold them, and what each turn cost."""

from __future__ import annotations

from typing import Any, NamedTuple

import httpx

from tests.support.turns import M, block, invoke, parameter, pieces, tool

TOOLS = [{"type": "function", "function": tool("bash", "command")}]
# A helper of an agent: short, and nothing in common with the conversation.
HELPER = [{"role": "system", "content": "Make a title."}, {"role": "user", "content": "hello"}]


class Figures(NamedTuple):
    """Tokens of one turn."""

    prompt: int
    cached: int
    completion: int

    @property
    def new(self) -> int:
        """What had to be computed of the prompt."""
        return self.prompt - self.cached

    @property
    def live(self) -> int:
        """What the state holds after the turn."""
        return self.prompt + self.completion


def call(command: str) -> str:
    """A call as the model writes it: nobody would render it with these spaces."""
    return "\n\n" + block(invoke("bash", parameter("command", command), parameter("n", "[1,   2]", "false")))


def forced(name: str) -> list[Any]:
    """The pieces of a call, by a model that would rather refuse to make one."""
    return [
        {"text": "I'd rather not.", "else": ["\n\n<"]},
        *[M, "tool_calls>\n<", M, 'invoke name="', name, '">\n'],
        *["<", M, 'parameter name="command" string="true">ls</', M, "parameter>\n</", M, "invoke>\n</"],
        *[M, "tool_calls>"],
    ]


def script(*texts: str, **rest: Any) -> dict[str, Any]:
    """A script with one turn for each text; `rest` is the script's rest."""
    return {"turns": [turn(text) for text in texts], **rest}


def turn(text: str, **rest: Any) -> dict[str, Any]:
    """A turn that says `text`, one step for each stretch between control strings."""
    return {"pieces": pieces(text), **rest}


def ask(url: str, messages: list[Any], **fields: Any) -> Any:
    """A whole answer, which must be one."""
    response = httpx.post(f"{url}/v1/chat/completions", json={"messages": messages} | fields, timeout=60)
    assert response.status_code == 200, response.text
    return response.json()


def figures(answer: Any) -> Figures:
    """What an answer says that it cost."""
    usage = answer["usage"]
    cached = usage["prompt_tokens_details"]["cached_tokens"]
    return Figures(usage["prompt_tokens"], cached, usage["completion_tokens"])


class Talk:
    """A client's side of a conversation. `echo`: it sends reasoning back; `fields` go with each request."""

    def __init__(self, *, echo: bool = True, **fields: Any) -> None:
        self.history: list[Any] = []
        self.answers: list[Any] = []
        self._echo = echo
        self._fields = fields

    def say(self, url: str, text: str) -> Figures:
        """Send a user message and keep the answer."""
        self.history.append({"role": "user", "content": text})
        return self._turn(url)

    def result(self, url: str, text: str = "out") -> Figures:
        """Send the results of the last answer's calls."""
        calls = self.history[-1]["tool_calls"]
        self.history += [{"role": "tool", "tool_call_id": each["id"], "content": text} for each in calls]
        return self._turn(url)

    def again(self, url: str) -> Figures:
        """Throw the last answer away and ask for another one."""
        assert self.history.pop()["role"] == "assistant"
        return self._turn(url)

    def _turn(self, url: str) -> Figures:
        answer = ask(url, self.history, **self._fields)
        message = answer["choices"][0]["message"]
        self.answers.append(message)
        self.history.append({k: v for k, v in message.items() if self._echo or k != "reasoning_content"})
        return figures(answer)
