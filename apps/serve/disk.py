"""Opens the disk store that the settings ask for, and says in one line where it is or why there is none.

Knows the model's names and no session. Spec: kv §13.
"""

from __future__ import annotations

import contextlib
import os
from functools import partial
from pathlib import Path

from apps.kv_folder import store_folder
from apps.memory import MIB
from apps.serve.log import LogKind, ServerLog
from apps.serve.settings import DiskSettings
from apps.steering import is_steered, steering_of
from shared.errors import CacheFileError, StoreUnavailable
from shared.kv.files.cache_file import is_cache_name, read_cache_file
from shared.kv.store.directory import MARKER
from shared.kv.store.model_identity import ModelIdentity
from shared.kv.store.room import is_saved_session
from shared.kv.store.store import KvStore
from shared.session import Engine


def open_store(engine: Engine, disk: DiskSettings | None, log: ServerLog) -> KvStore | None:
    """The store of `engine`'s states, None if there is none. Without its own folder the server goes on
    without; a folder that the user named and that cannot be used raises StoreUnavailable."""
    if disk is None:
        log.line("kv store off: prompts are computed anew after a restart")
        return None
    try:
        directory = disk.directory or store_folder(engine.fingerprint)
        _check_no_conversations(directory)
        if is_steered(engine):
            _check_no_unmarked_states(directory)
        store = KvStore(
            directory,
            ModelIdentity(engine.model_id, engine.quant_bits, engine.fingerprint, _name(engine)),
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


def _name(engine: Engine) -> str:
    """What a folder's mark calls the model whose states it holds."""
    steering = steering_of(engine)
    if steering is None or not steering.active:
        return engine.name
    return f"{engine.name}, steered by {steering}"


def _check_no_conversations(directory: Path) -> None:
    """A folder of `ds4 chat` is no disk store: the store's mark would close it to the chat. Raises
    StoreUnavailable. What is marked is a store, whatever lies in it."""
    names: list[str] = []
    with contextlib.suppress(OSError):
        if not (directory / MARKER).exists():
            names = [name for name in os.listdir(directory) if is_cache_name(name)]
    for name in names:
        with contextlib.suppress(CacheFileError, OSError):
            if is_saved_session(read_cache_file(directory / name, any_abi=True).header):
                raise StoreUnavailable(
                    f"{directory} holds conversations of `ds4 chat`: choose another directory for the server"
                )


def _check_no_unmarked_states(directory: Path) -> None:
    """States in a folder without a mark may be of the C engine, and were not come to under our steering.
    Raises StoreUnavailable."""
    with contextlib.suppress(OSError):
        if not (directory / MARKER).exists() and any(is_cache_name(name) for name in os.listdir(directory)):
            raise StoreUnavailable(
                f"{directory} holds saved states that may not be steered: choose another directory"
            )


def _where(store: KvStore) -> str:
    files, size = store.contents()
    budget = store.settings.budget_bytes
    of = "" if budget is None else f" of {budget / MIB:.0f} MiB"
    only = " (read-only: another process writes to it)" if store.read_only else ""
    return f"kv store {store.directory}: {files} files, {size / MIB:.0f} MiB{of}{only}"
