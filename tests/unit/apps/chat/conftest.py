"""Chats that save in one folder, as the tests of saved conversations need them."""

import pytest

from tests.support.chats import Chat
from tests.support.scripts import turn

ANSWER = turn("Hm.", "</think>", "Yes.")


@pytest.fixture
def chat(tmp_path):
    """Opens chats that save in one folder."""
    opened = []

    def open_chat(*turns, **fields):
        opened.append(Chat(*(turns or [ANSWER] * 9), folder=tmp_path / "sessions", **fields))
        return opened[-1]

    yield open_chat
    for each in opened:
        each.close()
