"""Opens the disk store that the settings ask for, and says in one line where it is or why there is none.

Knows the model's names and no session. Spec: kv §13.
"""

from __future__ import annotations

from functools import partial

from apps.kv_folder import store_folder
from apps.memory import MIB
from apps.serve.log import LogKind, ServerLog
from apps.serve.settings import DiskSettings
from shared.errors import StoreUnavailable
from shared.kv.store.model_identity import ModelIdentity
from shared.kv.store.store import KvStore
from shared.session import Engine


def open_store(engine: Engine, disk: DiskSettings | None, log: ServerLog) -> KvStore | None:
    """The store of `engine`'s states, None if there is none. Without its own folder the server goes on
    without; a folder that the user named and that cannot be used raises StoreUnavailable."""
    if disk is None:
        log.line("kv store off: prompts are computed anew after a restart")
        return None
    try:
        store = KvStore(
            disk.directory or store_folder(engine.fingerprint),
            ModelIdentity(engine.model_id, engine.quant_bits, engine.fingerprint, engine.name),
            disk.store,
            say=partial(log.line, kind=LogKind.CACHE),
            decode=engine.tokenizer.decode,
        )
    except StoreUnavailable as error:
        if disk.directory is not None:
            raise
        log.warning(f"kv store off: {error}")
        return None
    log.line(_where(store))
    return store


def _where(store: KvStore) -> str:
    files, size = store.contents()
    budget = store.settings.budget_bytes
    of = "" if budget is None else f" of {budget / MIB:.0f} MiB"
    only = " (read-only: another process writes to it)" if store.read_only else ""
    return f"kv store {store.directory}: {files} files, {size / MIB:.0f} MiB{of}{only}"
