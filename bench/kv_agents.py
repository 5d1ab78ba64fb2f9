"""What agents send: requests of three kinds of sessions, and what the model answers to each.

The histories are made of filler; their shape is what matters. Must not know: engines, stores.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from shared.text.messages import Message, ToolCall, ToolSet

_READ = {
    "name": "read",
    "description": "Read a file.",
    "parameters": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
}
TOOLS = ToolSet([_READ])
_LETTERS = "etaoin shrdlu cmfwyp "


@dataclass(frozen=True, slots=True)
class Request:
    """`name` says what it is in its session; `match` occurs in its last message only, `reply` answers it."""

    name: str
    messages: tuple[Message, ...]
    tools: ToolSet | None
    match: str
    reply: str


def tool_session(turns: int) -> Iterator[Request]:
    """One task, solved with a call in every turn: the history only grows."""
    history = [_system("You work on a code base.", 3000), _user("task", 400)]
    for turn in range(turns):
        match = "task:" if turn == 0 else f"result {turn}:"
        block = _block(f"src/{turn}.py")
        yield Request(f"turn {turn + 1}", tuple(history), TOOLS, match, f"I read file {turn}.{block}")
        call = ToolCall(f"call_{turn}", "read", f'{{"path": "src/{turn}.py"}}')
        history.append(
            Message("assistant", f"I read file {turn}.", tool_calls=(call,), raw_dsml=block.encode())
        )
        history.append(Message("tool", _filler(f"result {turn + 1}", 700), tool_call_ids=(call.id,)))


def regenerate_and_edit(turns: int) -> Iterator[Request]:
    """Every question is asked, asked again, then asked with another ending; the talk goes on from there."""
    history = [_system("You are a patient teacher.", 3000)]
    for turn in range(turns):
        question = _filler(f"question {turn}", 500)
        for number, name in enumerate(("asked", "asked again", "edited")):
            match = f"version {0 if number < 2 else 1} of {turn}."
            message = Message("user", f"{question} {match}")
            reply = _filler(f"answer {turn} {max(0, number - 1)}", 300)
            yield Request(f"{name} {turn + 1}", (*history, message), None, match, reply)
        history += [message, Message("assistant", reply)]


def interleaved(turns: int) -> Iterator[Request]:
    """A long conversation; between its turns small helpers ask for titles, now and then for a summary."""
    history = [_system("You are the main agent.", 6000)]
    for turn in range(turns):
        message, reply = _user(f"main {turn}", 600), _filler(f"main answer {turn}", 300)
        yield Request(f"main {turn + 1}", (*history, message), None, f"main {turn}:", reply)
        history += [message, Message("assistant", reply)]
        title = (_system("You write titles.", 100), _user(f"title {turn}", 150))
        yield Request(f"title {turn + 1}", title, None, f"title {turn}:", f"Title {turn}")
        if turn % 3 == 2:
            summary = (_system("You summarise.", 1200), _user(f"summary {turn}", 1500))
            yield Request(f"summary {turn + 1}", summary, None, f"summary {turn}:", _filler("summary", 200))


SESSIONS = {
    "growing tool session": tool_session,
    "regenerate and edit": regenerate_and_edit,
    "main agent and helpers": interleaved,
}


def _system(opening: str, size: int) -> Message:
    return Message("system", _filler(opening, size))


def _user(opening: str, size: int) -> Message:
    return Message("user", _filler(opening, size))


def _filler(opening: str, size: int) -> str:
    """`size` letters that begin with `opening` and follow from it."""
    return (opening + ": " + "".join(random.Random(opening).choices(_LETTERS, k=size)))[:size]


def _block(path: str) -> str:
    return (
        '\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name="read">\n'
        f'<｜DSML｜parameter name="path" string="true">{path}</｜DSML｜parameter>\n'
        "</｜DSML｜invoke>\n</｜DSML｜tool_calls>"
    )
