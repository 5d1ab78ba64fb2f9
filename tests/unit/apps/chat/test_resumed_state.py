"""A conversation that was saved and taken up by another program goes on bit for bit like the live one."""

from __future__ import annotations

import pytest

from apps.chat.settings import NEWEST
from shared.model.reference_engine import load
from tests.support.chats import Chat
from tests.support.golden import tiny_q2
from tests.support.kv_checker import check_cache_bytes

RATIOS = (0, 0, 4, 128, 4, 128)


@pytest.fixture(params=["reference", "mlx"])
def engine(request):
    if request.param == "reference":
        return load(tiny_q2())
    pytest.importorskip("mlx.core")
    from tests.support.mlx_models import engine

    return engine()


def test_it_goes_on_bit_for_bit(engine, tmp_path):
    fields = {"engine": engine, "context": 512, "system": "Be brief.", "max_tokens": 7}
    live = Chat(folder=tmp_path / "sessions", **fields)
    live.run("/nothink", "A first message, long enough to fill a few rows.", "/save")
    (path,) = (tmp_path / "sessions").glob("*.kv")
    assert check_cache_bytes(path.read_bytes(), path.name, RATIOS) == []

    again = Chat(folder=tmp_path / "sessions", resume=NEWEST, **fields)
    assert again.conversation.session.snapshot() == live.conversation.session.snapshot()
    for message in ("more", "and more"):
        live.run(message)
        again.run("/nothink", message)
        assert again.conversation.tokens == live.conversation.tokens
        assert again.conversation.session.snapshot() == live.conversation.session.snapshot()
    live.close()
    again.close()


def test_switching_away_and_back_changes_no_bit(engine, tmp_path):
    chat = Chat(engine=engine, context=512, system="", max_tokens=5, folder=tmp_path / "sessions")
    chat.run("/nothink", "one", "/save")
    before, tokens = chat.conversation.session.snapshot(), chat.conversation.tokens
    (first,) = (tmp_path / "sessions").glob("*.kv")
    chat.run("/new", "another conversation", f"/switch {first.name[:8]}")
    assert chat.conversation.tokens == tokens
    assert chat.conversation.session.snapshot() == before
    # Stripped it is computed from its text: the same tokens, if not always the same bits.
    chat.run("/new", "and another one", f"/strip {first.name[:8]}", f"/switch {first.name[:8]}")
    assert chat.conversation.tokens == tokens
    chat.close()
