"""From a whole checkpoint to a file that this engine and the `gguf` package read."""

from __future__ import annotations

from pathlib import Path
from threading import Event

import gguf
import numpy as np
import pytest
from gguf.quants import dequantize

from shared.gguf.reader import GgufFile
from shared.gguf.types import TensorType
from shared.model.open import open_model
from shared.model.reference import Reference
from shared.model.reference_state import ReferenceState
from shared.model.reference_weights import ReferenceWeights
from shared.quant.dequantise import dequantise
from shared.quantise import encode
from shared.quantise.header import Template, imatrix_entries, read_template, template_of_checkpoint
from shared.quantise.imatrix import Imatrix, read_imatrix
from shared.quantise.plan import check_imatrix, make_plan
from shared.quantise.recipe import Recipe
from shared.quantise.run import Conversion, convert
from shared.quantise.safetensors import Checkpoint
from tests.support.tiny_checkpoints import TinyCheckpoint, write_imatrix

# Greatest relative root mean square errors of a tensor.
ERRORS = {
    TensorType.F32: 0.0,
    TensorType.I32: 0.0,
    TensorType.MXFP4: 0.0,
    TensorType.F16: 3e-4,
    TensorType.Q8_0: 0.012,
    TensorType.Q4_K: 0.09,
    TensorType.Q2_K: 0.32,
    TensorType.IQ2_XXS: 0.5,
}
PARTS = ("gate_exps", "up_exps", "down_exps")
TWO_BITS = (TensorType.IQ2_XXS, TensorType.IQ2_XXS, TensorType.Q2_K)
FOUR_BITS = tuple((f"blk.2.ffn_{part}", TensorType.Q4_K) for part in PARTS)
# Every type that there is: layer 0 at two bits, layer 1 as it comes, layer 2 at four.
MIXED = Recipe(
    "mxfp4",
    overrides=(
        *((f"blk.0.ffn_{part}", type) for part, type in zip(PARTS, TWO_BITS, strict=True)),
        *FOUR_BITS,
    ),
)


@pytest.fixture(scope="module")
def tiny() -> TinyCheckpoint:
    return TinyCheckpoint()


@pytest.fixture(scope="module")
def folder(tiny: TinyCheckpoint, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoint")
    tiny.write(folder)
    tiny.write_template(folder / "template.gguf")
    return folder


def converted(
    folder: Path,
    path: Path,
    recipe: Recipe,
    imatrix: Imatrix | None = None,
    workers: int = 2,
    template: Template | None = None,
) -> Path:
    template = template or read_template(folder / "template.gguf")
    with Checkpoint.open(folder) as checkpoint:
        plan = make_plan(checkpoint, template.shape, recipe)
        metadata = [*template.metadata, *(() if imatrix is None else imatrix_entries(imatrix))]
        convert(Conversion(checkpoint, metadata, plan, imatrix), path, workers=workers)
    return path


@pytest.fixture(scope="module")
def mixed(folder: Path) -> Path:
    return converted(folder, folder / "mixed.gguf", MIXED)


@pytest.fixture(scope="module")
def lossless(folder: Path) -> Path:
    return converted(folder, folder / "lossless.gguf", Recipe("mxfp4"))


def relative_error(read: np.ndarray, meant: np.ndarray) -> float:
    return float(np.sqrt(np.square(read.astype(np.float64) - meant).mean() / np.square(meant).mean()))


@pytest.mark.parametrize("which", ["mixed", "lossless"])
def test_every_tensor_is_what_the_checkpoint_means(which, request, tiny: TinyCheckpoint) -> None:
    with GgufFile.open(request.getfixturevalue(which)) as file:
        assert set(file.tensors) == set(tiny.floats)
        for name, info in file.tensors.items():
            meant = tiny.floats[name]
            data = file.data(name)
            if info.type is TensorType.I32:
                read = data.view("<i4").reshape(meant.shape)
            else:
                read = dequantise(info.type, data, meant.shape)
            assert relative_error(read, meant) <= ERRORS[info.type], name


@pytest.mark.parametrize("which", ["mixed", "lossless"])
def test_the_gguf_package_reads_the_same(which, request, tiny: TinyCheckpoint) -> None:
    path = request.getfixturevalue(which)
    reader = gguf.GGUFReader(path)
    theirs = {tensor.name: tensor for tensor in reader.tensors}
    with GgufFile.open(path) as file:
        assert set(theirs) == set(file.tensors)
        for name, info in file.tensors.items():
            tensor = theirs[name]
            assert tuple(tensor.shape.tolist()) == info.dims
            assert int(tensor.tensor_type) == info.type
            if info.type is not TensorType.I32:
                read = dequantize(tensor.data, tensor.tensor_type)
                ours = dequantise(info.type, file.data(name), tiny.floats[name].shape)
                np.testing.assert_array_equal(read.reshape(ours.shape), ours)


def test_the_engine_runs_it(mixed: Path, lossless: Path) -> None:
    logits = []
    for path in (mixed, lossless):
        with open_model(path) as file:
            reference = Reference(ReferenceWeights(file.gguf, file.shape), file.shape, "float")
            ids = list(range(20))
            streams, _ = reference.forward(ids, ReferenceState(file.shape, len(ids) + 1))
            logits.append(reference.output_head(streams))
    assert all(np.isfinite(part).all() for part in logits)
    assert logits[1].std() > 0.1
    # Two bits are rough on random weights, but what comes out is still the same model.
    assert np.corrcoef(logits[0].ravel(), logits[1].ravel())[0, 1] > 0.9


def test_metadata_are_those_of_the_template(folder: Path, lossless: Path) -> None:
    with GgufFile.open(folder / "template.gguf") as template, GgufFile.open(lossless) as file:
        assert set(file.metadata) == set(template.metadata)
        for key, value in template.metadata.items():
            assert file.metadata_type(key) is template.metadata_type(key)
            assert file.element_type(key) is template.element_type(key)
            assert list(np.ravel(file.metadata[key])) == list(np.ravel(value))


def test_bytes_do_not_depend_on_the_number_of_workers(folder: Path, mixed: Path, tmp_path: Path) -> None:
    alone = converted(folder, tmp_path / "alone.gguf", MIXED, workers=1)
    assert alone.read_bytes() == mixed.read_bytes()


def test_matrices_are_written_in_pieces(
    folder: Path, lossless: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encode, "_PIECE_ELEMENTS", 1 << 10)
    pieces = converted(folder, tmp_path / "pieces.gguf", Recipe("mxfp4"))
    assert pieces.read_bytes() == lossless.read_bytes()


def test_without_a_template_the_checkpoint_describes_itself(
    folder: Path, lossless: Path, tiny: TinyCheckpoint, tmp_path: Path
) -> None:
    tiny.write_config(folder)
    own = converted(folder, tmp_path / "own.gguf", Recipe("mxfp4"), template=template_of_checkpoint(folder))
    with open_model(own) as file, GgufFile.open(lossless) as other:
        assert file.name == folder.name
        assert file.shape == tiny.shape
        assert all(bytes(file.gguf.data(name)) == bytes(other.data(name)) for name in other.tensors)
        assert file.tokenizer.decode(file.tokenizer.encode_text("the théâtre")).decode() == "the théâtre"
    assert {field.name for field in gguf.GGUFReader(own).fields.values()} > set(file.gguf.metadata)


def test_work_that_nobody_waits_for_stops(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = Event()
    ended = []

    def endless(type, values, importance=None, *, check):
        begun.set()
        try:
            while True:
                check()
        finally:
            ended.append(type)

    monkeypatch.setattr(encode, "quantise", endless)
    with Checkpoint.open(folder) as checkpoint:
        shape = read_template(folder / "template.gguf").shape
        plan = make_plan(checkpoint, shape, Recipe("mxfp4", overrides=FOUR_BITS))
        quick, slow = (
            tensor for tensor in plan if "ffn_down_exps" in tensor.name and ".1." not in tensor.name
        )
        pieces = encode.encoded([quick, slow], checkpoint, None, workers=2)
        next(pieces)
        assert begun.wait(60)
        pieces.close()
    assert ended


def test_an_imatrix_guides_its_experts_and_is_noted(
    folder: Path, mixed: Path, tiny: TinyCheckpoint, tmp_path: Path
) -> None:
    shape = tiny.shape
    random = np.random.default_rng(2)
    names = [f"blk.2.ffn_{part}.weight" for part in PARTS]
    entries = {name: random.random(256 * shape.expert_count) ** 8 for name in names}
    imatrix = read_imatrix(write_imatrix(tmp_path / "i.dat", entries))
    guided = converted(folder, tmp_path / "guided.gguf", Recipe("mxfp4", overrides=FOUR_BITS), imatrix)
    with GgufFile.open(mixed) as without, GgufFile.open(guided) as file:
        assert file.metadata["quantize.imatrix.file"] == "i.dat"
        assert file.metadata["quantize.imatrix.dataset"] == "stories"
        assert file.metadata["quantize.imatrix.entries_count"] == 3
        assert file.metadata["quantize.imatrix.chunks_count"] == 7
        changed = {name for name in file.tensors if bytes(file.data(name)) != bytes(without.data(name))}
        assert {name for name in changed if not name.startswith("blk.0.")} == set(names)
        for name in names:
            meant = tiny.floats[name]
            weights = imatrix.entries[name].reshape(shape.expert_count, 1, 256)
            errors = [
                (np.square(dequantise(TensorType.Q4_K, held.data(name), meant.shape) - meant) * weights).sum()
                for held in (file, without)
            ]
            assert errors[0] < 0.9 * errors[1]


def test_what_an_imatrix_lacks(folder: Path, tmp_path: Path, tiny: TinyCheckpoint) -> None:
    whole = {f"blk.0.ffn_{part}.weight": np.ones(512) for part in PARTS}
    one = {"blk.1.ffn_up_exps.weight.expert.0": np.ones(256)}
    held = read_imatrix(write_imatrix(tmp_path / "i.dat", whole | one))
    with Checkpoint.open(folder) as checkpoint:
        plan = make_plan(checkpoint, tiny.shape, Recipe("q2"))
        lossless = make_plan(checkpoint, tiny.shape, Recipe("mxfp4"))
    assert check_imatrix(plan, held) == [
        f"blk.{layer}.ffn_{part}.weight" for layer in (1, 2) for part in PARTS
    ]
    assert check_imatrix(lossless, held) == []
