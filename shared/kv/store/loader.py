"""From a cache file into a session: every check that stands between them. Spec: kv §4.2.

Owns the order of the checks. Must not know: where files lie, what becomes of one that fails.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from shared.errors import DamagedFile, ForeignFile, PayloadDamaged, PayloadError
from shared.kv.files.cache_file import CacheFile, cache_name
from shared.kv.files.cache_reader import CacheReader, open_cache_file
from shared.session import Session

Decode = Callable[[Sequence[int]], bytes]


@dataclass(frozen=True, slots=True)
class LoadedState:
    """What the session holds now, and the file as it was when it was read."""

    tokens: list[int]
    text: bytes
    tool_map: dict[str, bytes]
    file: CacheFile


def load_state(path: Path, rendered: bytes, model_id: int, session: Session, decode: Decode) -> LoadedState:
    """Load `path` into `session`, if its key is a beginning of `rendered`.

    Raises DamagedFile (it can never be used), ForeignFile and PayloadError (not by this session), and what
    the file system or the engine raises. The session is then untouched or invalid, never half loaded.
    """
    with open_cache_file(path) as reader:
        file, text = reader.file, reader.text()
        if file.header.model_id != model_id:
            raise ForeignFile(f"{path.name} is of another model")
        if cache_name(text) != file.name:
            raise DamagedFile(f"{path.name}: its text does not hash to its name")
        if not rendered.startswith(text):
            raise PayloadError(f"{path.name} is not a beginning of this prompt")
        try:
            tokens = _load_payload(reader, session)
            _check(reader, tokens, text, decode)
        except BaseException:
            session.invalidate()
            raise
        return LoadedState(tokens, text, reader.tool_map(), file)


def _load_payload(reader: CacheReader, session: Session) -> list[int]:
    try:
        session.load(reader.payload(), reader.file.header.payload_bytes)
    except PayloadDamaged as error:
        raise DamagedFile(f"{reader.file.path.name}: {error}") from None
    except PayloadError:
        # A damaged payload can look like one that only does not fit.
        _check_sum(reader)
        raise
    return session.tokens


def _check(reader: CacheReader, tokens: list[int], text: bytes, decode: Decode) -> None:
    name, header = reader.file.path.name, reader.file.header
    _check_sum(reader)
    if len(tokens) != header.tokens:
        raise DamagedFile(f"{name}: it holds {len(tokens)} tokens, its header says {header.tokens}")
    if header.key_label == "token-text" and decode(tokens) != text:
        raise DamagedFile(f"{name}: its tokens are not those of its text")


def _check_sum(reader: CacheReader) -> None:
    if reader.verify_checksum() is False:
        raise DamagedFile(f"{reader.file.path.name}: its checksum is wrong")
