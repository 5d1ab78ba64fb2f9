"""Writing: interrupted at any piece and gone on with, never mixed up, never half a file under the name."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from shared.quantise import run
from shared.quantise.header import read_template
from shared.quantise.imatrix import read_imatrix
from shared.quantise.plan import PlannedTensor, make_plan
from shared.quantise.recipe import Recipe
from shared.quantise.run import Conversion, OutputError, convert
from shared.quantise.safetensors import Checkpoint, CheckpointError
from tests.support.tiny_checkpoints import TinyCheckpoint, write_imatrix

Progress = Callable[[PlannedTensor, int], None]


class Interrupted(Exception):
    pass


class Source:
    """A checkpoint on disk and conversions of it."""

    def __init__(self, folder: Path, tiny: TinyCheckpoint) -> None:
        self.tiny = tiny
        self.folder = self.tiny.write(folder)
        self.template = read_template(self.tiny.write_template(folder / "template.gguf"))

    def conversion(self, checkpoint: Checkpoint, **changes: object) -> Conversion:
        plan = make_plan(checkpoint, self.template.shape, Recipe("mxfp4"))
        return Conversion(checkpoint, self.template.metadata, plan, **changes)  # type: ignore[arg-type]

    def write(self, path: Path, progress: Progress = lambda tensor, nbytes: None) -> int:
        with Checkpoint.open(self.folder) as checkpoint:
            return convert(self.conversion(checkpoint), path, workers=2, progress=progress)


def stopping_after(pieces: int) -> Progress:
    left = pieces

    def progress(tensor: PlannedTensor, nbytes: int) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise Interrupted

    return progress


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Source:
    return Source(tmp_path_factory.mktemp("checkpoint"), TinyCheckpoint())


@pytest.fixture(scope="module")
def whole(source: Source, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("whole") / "m.gguf"
    assert source.write(path) == 0
    assert [entry.name for entry in path.parent.iterdir()] == ["m.gguf"]
    return path.read_bytes()


@pytest.fixture(autouse=True)
def quick_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.mark.parametrize("pieces", [0, 1, 30, 60, 100])
def test_an_interrupted_run_is_gone_on_with(
    source: Source, whole: bytes, tmp_path: Path, pieces: int
) -> None:
    path = tmp_path / "m.gguf"
    with pytest.raises(Interrupted):
        source.write(path, stopping_after(pieces))
    assert not path.exists()
    seen: list[tuple[str, int]] = []
    resumed = source.write(path, lambda tensor, nbytes: seen.append((tensor.name, nbytes)))
    assert (resumed > 0) == (pieces > 0)
    assert path.read_bytes() == whole
    assert [entry.name for entry in tmp_path.iterdir()] == ["m.gguf"]
    with Checkpoint.open(source.folder) as checkpoint:
        plan = source.conversion(checkpoint).plan
    sizes: dict[str, int] = {}
    for name, nbytes in seen:
        sizes[name] = sizes.get(name, 0) + nbytes
    assert sizes == {tensor.name: tensor.nbytes for tensor in plan}


def test_data_beyond_the_last_note_are_written_again(source: Source, whole: bytes, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    with pytest.raises(Interrupted):
        source.write(path, stopping_after(40))
    with (tmp_path / "m.gguf.unfinished").open("ab") as file:
        file.write(b"\1" * len(whole))
    assert source.write(path) > 0
    assert path.read_bytes() == whole


@pytest.mark.parametrize("journal", [b"", b"{", b"[]", b'{"conversion": 1}', None])
def test_without_a_usable_note_it_starts_anew(
    source: Source, whole: bytes, tmp_path: Path, journal: bytes | None
) -> None:
    path = tmp_path / "m.gguf"
    with pytest.raises(Interrupted):
        source.write(path, stopping_after(40))
    note = tmp_path / "m.gguf.unfinished.json"
    if journal is None:
        held = json.loads(note.read_bytes())
        note.write_text(json.dumps(held | {"complete": 10**6}))
    else:
        note.write_bytes(journal)
    assert source.write(path) == 0
    assert path.read_bytes() == whole


def test_a_shorter_file_than_noted_starts_anew(source: Source, whole: bytes, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    with pytest.raises(Interrupted):
        source.write(path, stopping_after(40))
    os.truncate(tmp_path / "m.gguf.unfinished", 20000)
    assert source.write(path) == 0
    assert path.read_bytes() == whole


def test_another_conversion_does_not_go_on_with_it(
    source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    imatrix = read_imatrix(write_imatrix(tmp_path / "i.dat", {"a": np.ones(1)}))
    with Checkpoint.open(source.folder) as checkpoint:
        first = source.conversion(checkpoint)
        prints = {first.fingerprint(), source.conversion(checkpoint, imatrix=imatrix).fingerprint()}
        assert len(prints) == 2
        assert source.conversion(checkpoint).fingerprint() in prints
        plan = make_plan(checkpoint, source.template.shape, Recipe("q2"))
        prints.add(Conversion(checkpoint, first.metadata, plan).fingerprint())
        monkeypatch.setattr(run, "EDITION", 0)
        prints.add(first.fingerprint())
        os.utime(next(source.folder.glob("*.safetensors")), (1, 1))
        prints.add(first.fingerprint())
    assert len(prints) == 5


def test_two_processes_do_not_write_one_file(source: Source, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    refused = []

    def progress(tensor: PlannedTensor, nbytes: int) -> None:
        if not refused:
            with pytest.raises(OutputError, match="another process is writing") as caught:
                source.write(path)
            refused.append(caught)

    source.write(path, progress)
    assert refused


@pytest.mark.parametrize(
    ("name", "spoil", "reason"),
    [
        ("layers.1.ffn.experts.0.w2.scale", lambda data: data.fill(255), "experts.0.w2.weight' .*not finite"),
        ("layers.1.attn.wq_a.weight", lambda data: data.fill(127), "wq_a.weight' .*not finite"),
        ("layers.2.ffn.gate.weight", lambda data: data.fill(0x7F00), "gate.weight' .*beyond 65504"),
        ("layers.0.ffn.gate.tid2eid", lambda data: data.fill(2), "names experts outside 0 to 1"),
        ("layers.0.ffn.gate.tid2eid", lambda data: data.fill(-1), "names experts outside 0 to 1"),
    ],
)
def test_numbers_that_cannot_be_written(
    source: Source, tmp_path: Path, name: str, spoil, reason: str
) -> None:
    spoilt = source.tiny.copy()
    spoil(spoilt.stored[name][1])
    with pytest.raises(CheckpointError, match=reason):
        Source(tmp_path / "hf", spoilt).write(tmp_path / "m.gguf")
    assert not (tmp_path / "m.gguf").exists()
