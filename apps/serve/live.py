"""The live state of a server from start to end: sessions in slots, with the disk behind them.

Owns the order of opening and closing; what happens in between is the turns' business.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import NamedTuple

from apps.memory import MIB
from apps.serve.disk import open_store
from apps.serve.log import ServerLog, describe
from apps.serve.settings import ServerSettings
from shared.kv.live.slots import Slots
from shared.kv.live.tool_memory import ToolMemory
from shared.kv.payload import mark_size
from shared.kv.store.store import KvStore
from shared.session import Engine


class Live(NamedTuple):
    """The slots, and the store behind them if there is one."""

    slots: Slots
    store: KvStore | None


@contextmanager
def live_state(
    engine: Engine, context: int, settings: ServerSettings, memory: ToolMemory, log: ServerLog
) -> Iterator[Live]:
    """Sessions of `context` tokens, ready for turns. At the end their states are saved, and all is on disk
    when this returns. Raises StoreUnavailable, and what opening a session raises."""
    with ExitStack() as opened:
        store = open_store(engine, settings.disk, log)
        if store is not None:
            opened.callback(store.close)
        sessions = [
            opened.enter_context(closing(engine.open_session(context))) for _ in range(settings.sessions)
        ]
        least = mark_size(engine.shape, context)
        if 0 < settings.checkpoint_bytes < least:
            log.warning(
                f"--kv-checkpoint-mb {settings.checkpoint_bytes // MIB} has room for no point to go back to: "
                f"one takes {least / MIB:.1f} MiB with this model"
            )
        slots = Slots(
            sessions,
            engine.tokenizer,
            store=store,
            tool_memory=memory if settings.exact_replay else None,
            checkpoint_bytes=settings.checkpoint_bytes,
        )
        yield Live(slots, store)
        try:
            slots.shut_down()
        except Exception as error:
            # The server is going down in any case; what is on disk already stays.
            log.error(f"what was live could not be saved: {describe(error)}")
