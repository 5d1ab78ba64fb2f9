"""Cache files of the C engine: read by our reader, written again by our writer, checked by the format."""

from __future__ import annotations

import io
import shutil
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from shared.kv.files.cache_file import CacheFile, cache_name, is_cache_name, read_cache_file
from shared.kv.files.cache_reader import open_cache_file
from shared.kv.files.cache_writer import replace_trailer, touch, write_cache_file
from shared.kv.files.header import Extension, Header, Reason
from shared.kv.files.trailers import encode_tool_map
from shared.kv.payload import PayloadLayout, read_payload, write_payload
from shared.model.open import open_model
from tests.support.golden import cache_folder, golden_json, tiny_q2
from tests.support.kv_checker import check_cache_bytes

ENTRIES = golden_json("kv/kv.json")["files"]
RATIOS = (0, 0, 4, 128, 4, 128)
IDS = [entry["reason"] for entry in ENTRIES]
HITS = {"cold": 3, "shutdown": 0}


@pytest.fixture(params=ENTRIES, ids=IDS)
def entry(request: pytest.FixtureRequest) -> dict[str, Any]:
    return dict(request.param)


@pytest.fixture
def golden(entry: dict[str, Any]) -> Path:
    return cache_folder() / entry["file"]


def test_every_field_is_read(entry: dict[str, Any], golden: Path) -> None:
    file = read_cache_file(golden)
    header = file.header
    assert header.reason.label == entry["reason"]
    assert (header.tokens, header.context) == (entry["tokens"], entry["ctx"])
    assert (file.text_bytes, header.payload_bytes) == (entry["text_bytes"], entry["payload_bytes"])
    assert file.size - file.trailer_at == entry["trailer_bytes"]
    assert (header.quant_bits, header.model_id, header.payload_abi) == (2, 0, 2)
    assert (header.extensions, header.key_label) == (Extension(0), "token-text")
    assert header.hits == HITS[entry["reason"]]
    assert header.created_at <= header.last_used
    assert datetime.fromtimestamp(header.created_at, UTC).year >= 2025
    assert is_cache_name(golden.name)
    with open_cache_file(golden) as reader:
        assert cache_name(reader.text()) == golden.name
        assert (reader.tool_map(), reader.title(), reader.verify_checksum()) == ({}, None, None)


def test_the_text_is_the_start_of_the_conversation() -> None:
    prompt = golden_json("kv/kv.json")["rendered_prompt"].encode()
    texts = {}
    for entry in ENTRIES:
        with open_cache_file(cache_folder() / entry["file"]) as reader:
            texts[entry["reason"]] = reader.text()
    assert prompt.startswith(texts["cold"])
    assert texts["shutdown"].startswith(prompt)


def rewritten(golden: Path, directory: Path, header: Header) -> CacheFile:
    """The golden state read, and written as a file of ours."""
    with open_model(tiny_q2()) as model:
        shape = model.shape
    with open_cache_file(golden) as reader:
        layout = PayloadLayout(shape, reader.file.header.context, 128, 2048)
        state = read_payload(reader.payload(), reader.file.header.payload_bytes, layout)
        text = reader.text()
    payload = io.BytesIO()
    write_payload(payload, state, layout)
    return write_cache_file(directory / cache_name(text), header, text, [payload.getbuffer()])


def test_our_file_is_theirs_but_for_the_times_and_hits(tmp_path: Path, golden: Path) -> None:
    theirs = read_cache_file(golden).header
    now = 1_800_000_000
    ours = Header(
        quant_bits=2,
        reason=Reason(theirs.reason),
        extensions=Extension(0),
        model_id=0,
        tokens=theirs.tokens,
        hits=0,
        context=2048,
        created_at=now,
        last_used=now,
        payload_bytes=theirs.payload_bytes,
    )
    file = rewritten(golden, tmp_path, ours)
    content, golden_content = file.path.read_bytes(), golden.read_bytes()
    assert check_cache_bytes(content, file.path.name, RATIOS) == []
    different = {at for at in range(48) if content[at] != golden_content[at]}
    assert different <= {*range(12, 16), *range(24, 40)}
    assert content[48:] == golden_content[48:]
    same = rewritten(golden, tmp_path, replace(ours, **_times_and_hits(theirs)))
    assert same.path.read_bytes() == golden_content


def _times_and_hits(header: Header) -> dict[str, Any]:
    return {"created_at": header.created_at, "last_used": header.last_used, "hits": header.hits}


def test_a_hit_and_a_tool_map_on_their_file(tmp_path: Path, golden: Path) -> None:
    path = tmp_path / golden.name
    shutil.copy(golden, path)
    path.chmod(0o644)
    file = touch(read_cache_file(path), 1_800_000_000)
    assert file.header.hits == read_cache_file(golden).header.hits + 1
    assert path.read_bytes()[48:] == golden.read_bytes()[48:]
    blocks = {"call_1": b"<tool_calls></tool_calls>"}
    replace_trailer(file, encode_tool_map(blocks), Extension.TOOL_MAP, 1_800_000_001)
    assert check_cache_bytes(path.read_bytes(), path.name, RATIOS) == []
    with open_cache_file(path) as reader:
        assert reader.tool_map() == blocks
    replace_trailer(file, b"", Extension(0), 1_800_000_002)
    assert path.read_bytes()[48:] == golden.read_bytes()[48:]
