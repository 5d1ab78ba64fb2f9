"""How long a store of many files takes to find those that a prompt begins with."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

from shared.kv.files.cache_file import cache_name
from shared.kv.files.cache_writer import write_cache_file
from shared.kv.files.header import Extension, Header, Reason
from shared.kv.store.policy import StoreSettings
from shared.kv.store.store import KvStore
from tests.support.stores import MODEL
from tests.support.synthetic_session import text_of

CONTEXT = 65536
# A prompt of about 30,000 tokens; every tenth file holds a beginning of it.
PROMPT = random.Random(1).randbytes(100_000)
# A directory that changed within this many seconds is read again: its clock is too coarse to tell.
SETTLED = 2.1


def measure(folder: Path, count: int) -> dict[str, Any]:
    """Milliseconds of a lookup over `count` files: by a new process, again, and after one more file."""
    source = random.Random(2)
    folder.mkdir()
    for number in range(count):
        length = source.randrange(2_000, len(PROMPT))
        put(folder, PROMPT[:length] if number % 10 == 0 else source.randbytes(length % 4_000))
    started = time.perf_counter()
    store = KvStore(folder, MODEL, StoreSettings(), say=lambda line: None, decode=text_of)
    found = len(store.find(PROMPT, CONTEXT))
    cold = time.perf_counter() - started
    time.sleep(SETTLED)
    store.find(PROMPT, CONTEXT)
    warm = min(lookup(store) for _ in range(5))
    put(folder, PROMPT[:1_999])
    one_more = lookup(store)
    assert len(store.find(PROMPT, CONTEXT)) == found + 1
    store.close()
    return {
        "files": count,
        "found": found,
        "cold ms": round(cold * 1e3, 2),
        "warm ms": round(warm * 1e3, 2),
        "after one new file ms": round(one_more * 1e3, 2),
    }


def lookup(store: KvStore) -> float:
    """Seconds of one lookup."""
    started = time.perf_counter()
    store.find(PROMPT, CONTEXT)
    return time.perf_counter() - started


def put(folder: Path, text: bytes) -> None:
    """A file with this key and next to no payload."""
    header = Header(
        quant_bits=2,
        reason=Reason.COLD,
        extensions=Extension(0),
        model_id=0,
        tokens=max(512, len(text) // 3),
        hits=0,
        context=CONTEXT,
        created_at=1_700_000_000,
        last_used=1_700_000_000,
        payload_bytes=8,
    )
    write_cache_file(folder / cache_name(text), header, text, [bytes(8)], durable=False, checksum=False)


def lines(results: list[dict[str, Any]]) -> list[str]:
    """The results as text."""
    return [
        "lookup of a prompt of 100 kB",
        *(
            f"  {r['files']:>6} files, {r['found']:>5} found: cold {r['cold ms']} ms, "
            f"warm {r['warm ms']} ms, after one new file {r['after one new file ms']} ms"
            for r in results
        ),
    ]
