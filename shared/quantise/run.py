"""Writing the new file, so that it can be interrupted at any time and gone on with.

While it grows it is called `NAME.unfinished`; a small file beside it says which plan it follows and how many
tensors are complete and on disk. Only the whole file gets its name.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from shared.errors import Ds4Error
from shared.gguf.reader import ALIGNMENT_KEY, DEFAULT_ALIGNMENT
from shared.gguf.writer import MetadataEntry, TensorData, encode_header
from shared.quantise.encode import encoded
from shared.quantise.imatrix import Imatrix
from shared.quantise.matrix import EDITION
from shared.quantise.plan import PlannedTensor
from shared.quantise.safetensors import Checkpoint


class OutputError(Ds4Error):
    """The new file cannot be written."""


@dataclass(frozen=True, slots=True)
class Conversion:
    """All that decides the bytes of the new file."""

    checkpoint: Checkpoint
    metadata: Sequence[MetadataEntry]
    plan: Sequence[PlannedTensor]
    imatrix: Imatrix | None = None

    def header(self) -> bytes:
        """Everything in front of the tensor data."""
        tensors = [TensorData(tensor.name, tensor.type, tensor.dims, b"") for tensor in self.plan]
        return encode_header(self.metadata, tensors)

    @property
    def alignment(self) -> int:
        held = {key: value for key, _, value in self.metadata}
        found = held.get(ALIGNMENT_KEY)
        return found if isinstance(found, int) else DEFAULT_ALIGNMENT

    def offsets(self) -> list[int]:
        """Where each tensor starts, and last where the file ends."""
        places = [len(self.header())]
        for tensor in self.plan:
            places.append(places[-1] + -(-tensor.nbytes // self.alignment) * self.alignment)
        return places

    def fingerprint(self) -> str:
        """Tells this conversion from any whose file would have other bytes."""
        digest = hashlib.sha256(self.header())
        files = sorted({source.path for tensor in self.plan for source in tensor.sources})
        stamps = [(path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in files]
        places = [(source.name, source.start) for tensor in self.plan for source in tensor.sources]
        imatrix = None if self.imatrix is None else self.imatrix.digest
        digest.update(json.dumps([EDITION, stamps, places, imatrix]).encode())
        return digest.hexdigest()


def convert(
    conversion: Conversion,
    path: Path,
    *,
    workers: int,
    progress: Callable[[PlannedTensor, int], None] = lambda tensor, nbytes: None,
) -> int:
    """Write the new file, going on with an unfinished one of the same conversion.

    `progress` hears of every tensor or part of one that is in the file, with its bytes. Returns how many
    tensors were there from before. Raises OutputError, CheckpointError, or OSError from the file system;
    then everything up to the last complete tensor stays for the next time.
    """
    with _unfinished(path) as file:
        journal = _Journal(path.with_name(path.name + ".unfinished.json"), conversion.fingerprint())
        offsets = conversion.offsets()
        size = os.fstat(file.fileno()).st_size
        done = journal.complete(len(conversion.plan))
        done = done if size >= offsets[done] else 0
        for tensor in conversion.plan[:done]:
            progress(tensor, tensor.nbytes)
        file.truncate(offsets[done] if done else 0)
        if not done:
            file.write(conversion.header())
        file.seek(offsets[done])
        _write(file, conversion, done, workers, journal, progress)
        os.fsync(file.fileno())
        os.replace(_unfinished_path(path), path)
        journal.remove()
    _sync_folder(path.absolute().parent)
    return done


def _write(
    file: BinaryIO,
    conversion: Conversion,
    done: int,
    workers: int,
    journal: _Journal,
    progress: Callable[[PlannedTensor, int], None],
) -> None:
    missing = 0
    complete = done
    for tensor, piece in encoded(conversion.plan[done:], conversion.checkpoint, conversion.imatrix, workers):
        missing = (missing or tensor.nbytes) - piece.nbytes
        file.write(piece.data)
        progress(tensor, piece.nbytes)
        assert missing >= 0, tensor.name
        if missing == 0:
            file.write(bytes(-tensor.nbytes % conversion.alignment))
            complete += 1
            journal.note(file, complete)


class _Journal:
    """The file that says how far the unfinished one has come."""

    def __init__(self, path: Path, fingerprint: str) -> None:
        self._path = path
        self._fingerprint = fingerprint

    def complete(self, count: int) -> int:
        """Tensors that are complete, 0 when the unfinished file is of another conversion."""
        try:
            held = json.loads(self._path.read_bytes())
        except (OSError, ValueError):
            return 0
        if not isinstance(held, dict) or held.get("conversion") != self._fingerprint:
            return 0
        complete = held.get("complete")
        return complete if isinstance(complete, int) and 0 <= complete <= count else 0

    def note(self, file: BinaryIO, complete: int) -> None:
        """The data first, then the note: it never promises what a crash could have lost."""
        file.flush()
        os.fsync(file.fileno())
        temporary = self._path.with_name(self._path.name + ".tmp")
        temporary.write_text(json.dumps({"conversion": self._fingerprint, "complete": complete}))
        os.replace(temporary, self._path)

    def remove(self) -> None:
        self._path.unlink(missing_ok=True)


def _unfinished_path(path: Path) -> Path:
    return path.with_name(path.name + ".unfinished")


@contextmanager
def _unfinished(path: Path) -> Iterator[BinaryIO]:
    """The growing file, ours alone."""
    descriptor = os.open(_unfinished_path(path), os.O_RDWR | os.O_CREAT, 0o666)
    with os.fdopen(descriptor, "r+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise OutputError(f"another process is writing {path}") from None
        yield file


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
