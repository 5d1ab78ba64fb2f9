"""`ds4 splice`: the tiny model's two recipes mixed, and everything that is refused."""

import json
import os

import numpy as np
import pytest
from gguf import GGUFReader

from apps import cli
from apps.splice.command import progress_lines
from shared.gguf.reader import GgufFile
from shared.gguf.types import TensorType, ValueType
from shared.model.reference_engine import load
from shared.model.splice import parse_layers
from tests.support.golden import tiny_pro, tiny_q2, tiny_q4
from tests.support.model_files import Q4, SMALL, metadata_of, tensors_of, write_hollow


def _splice(*options, base=None, donor=None):
    files = ["--base", str(base or tiny_q2()), "--donor", str(donor or tiny_q4())]
    return cli.main(["splice", *files, *map(str, options)])


def _data_start(path):
    with GgufFile.open(path) as gguf:
        return gguf.header().size


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    path = tmp_path_factory.mktemp("splice") / "mixed.gguf"
    assert _splice("--q4-layers", "1,4-5", "--out", path) == 0
    return path


def test_chosen_layers_come_from_the_donor_and_all_else_from_the_base(mixed):
    with GgufFile.open(mixed) as new, GgufFile.open(tiny_q2()) as base, GgufFile.open(tiny_q4()) as donor:
        assert list(new.tensors) == list(base.tensors)
        assert new.header()[: new.metadata_end].tobytes() == base.header()[: base.metadata_end].tobytes()
        taken = set()
        for name, info in new.tensors.items():
            source = base
            if "_exps." in name and int(name.split(".")[1]) in (1, 4, 5):
                taken.add(name)
                source = donor
                assert info.type is TensorType.Q4_K
            assert info.type is source.tensors[name].type
            assert new.data(name).tobytes() == source.data(name).tobytes(), name
            assert info.offset % new.alignment == 0
        assert len(taken) == 9


def test_another_reader_finds_the_same_tensors(mixed):
    found = {tensor.name: tensor for tensor in GGUFReader(mixed).tensors}
    with GgufFile.open(mixed) as new:
        assert found.keys() == new.tensors.keys()
        for name in ("blk.1.ffn_down_exps.weight", "blk.2.ffn_up_exps.weight", "output.weight"):
            assert found[name].data.tobytes() == new.data(name).tobytes()


def test_the_engine_runs_it(mixed):
    logits = []
    for path in (mixed, tiny_q2(), tiny_q4()):
        session = load(path).open_session(16)
        session.sync([0, 5, 9])
        logits.append(session.logits())
    assert np.isfinite(logits[0]).all()
    assert not np.array_equal(logits[0], logits[1])
    assert not np.array_equal(logits[0], logits[2])


def test_a_base_that_takes_nothing_new_stays_byte_for_byte(tmp_path):
    assert _splice("--q4-layers", "0-5", "--out", tmp_path / "same.gguf", donor=tiny_q2()) == 0
    assert (tmp_path / "same.gguf").read_bytes() == tiny_q2().read_bytes()
    # All layers of the sibling make its data, behind the base's metadata.
    assert _splice("--q4-layers", "0-5", "--out", tmp_path / "all.gguf") == 0
    data = (tmp_path / "all.gguf").read_bytes()[_data_start(tmp_path / "all.gguf") :]
    assert data == tiny_q4().read_bytes()[_data_start(tiny_q4()) :]


def test_the_plan_tells_types_and_sizes_and_writes_nothing(tmp_path, capsys):
    out = tmp_path / "new.gguf"
    assert _splice("--q4-layers", "3", "--dry-run", "--out", out) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "blk.3.ffn_gate_exps.weight: IQ2_XXS -> Q4_K"
    assert lines[2] == "blk.3.ffn_down_exps.weight: Q2_K -> Q4_K"
    assert lines[3].startswith("layers 3: 3 tensors, ")
    assert _splice("--q4-layers", "3", "--dry-run", "--json", "--out", out) == 0
    record = json.loads(capsys.readouterr().out)
    with GgufFile.open(tiny_q2()) as base, GgufFile.open(tiny_q4()) as donor:
        names = [f"blk.3.ffn_{part}_exps.weight" for part in ("gate", "up", "down")]
        old, new = (sum(file.tensors[name].nbytes for name in names) for file in (base, donor))
    assert record["donor_bytes"] == new
    assert record["delta_bytes"] == new - old == record["new_bytes"] - record["base_bytes"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("gibibytes", "expected"),
    [(100, list(range(5, 101, 5))), (5, [20, 40, 60, 80, 100]), (0.5, [100])],
)
def test_progress_comes_at_every_twentieth_of_a_large_file(capsys, gibibytes, expected):
    tell = progress_lines()
    total = int(gibibytes * (1 << 30))
    for step in range(1, 401):
        tell(total * step // 400, total)
    told = [int(line.split()[1]) for line in capsys.readouterr().err.splitlines()]
    assert told == expected


def test_a_small_file_says_once_that_it_is_written(tmp_path, capsys):
    assert _splice("--q4-layers", "1", "--out", tmp_path / "new.gguf") == 0
    lines = capsys.readouterr().err.splitlines()
    assert [line.startswith("written 100 %") for line in lines] == [True, False]
    assert lines[-1] == f"wrote {tmp_path}/new.gguf: {(tmp_path / 'new.gguf').stat().st_size} bytes"


def test_a_file_is_replaced_only_by_force_and_a_source_never(tmp_path, capsys):
    out = tmp_path / "new.gguf"
    out.write_bytes(b"precious")
    assert _splice("--q4-layers", "1", "--out", out) == 2
    assert "exists: give --force to replace it" in capsys.readouterr().err
    assert out.read_bytes() == b"precious"
    assert _splice("--q4-layers", "1", "--out", out, "--force") == 0
    copy = tmp_path / "base.gguf"
    copy.write_bytes(tiny_q2().read_bytes())
    assert _splice("--q4-layers", "1", "--out", copy, "--force", base=copy) == 2
    assert "it is what is to be read" in capsys.readouterr().err


def test_a_full_disk_is_told_before_anything_is_written(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("apps.splice.command.shutil.disk_usage", lambda _: type("Usage", (), {"free": 10}))
    assert _splice("--q4-layers", "1", "--out", tmp_path / "new.gguf") == 1
    assert "MiB but the disk has 0 MiB free" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def _one_more(path):
    return write_hollow(path, metadata_of(SMALL), [*tensors_of(SMALL), _extra("extra")])


def _extra(name):
    return type(tensors_of(SMALL)[0])(name, TensorType.F32, (4,), b"")


def _other_extra(path):
    return write_hollow(path, metadata_of(SMALL), [*tensors_of(SMALL), _extra("other")])


def _small(path):
    return write_hollow(path, metadata_of(SMALL), tensors_of(SMALL, lambda layer: Q4))


@pytest.mark.parametrize(
    ("make_base", "make_donor", "why"),
    [
        (_small, lambda path: tiny_q4(), "they have different shapes"),
        (lambda path: tiny_q2(), lambda path: tiny_pro(), "they have different shapes"),
        (_small, _one_more, "tensors"),
        (_one_more, _other_extra, "the second lacks the tensor 'extra'"),
    ],
)
def test_two_models_are_never_mixed(tmp_path, capsys, make_base, make_donor, why):
    base, donor = make_base(tmp_path / "base.gguf"), make_donor(tmp_path / "donor.gguf")
    assert _splice("--q4-layers", "1", "--out", tmp_path / "new.gguf", base=base, donor=donor) == 1
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("ds4: ")
    assert "are not the same model: " in line
    assert why in line
    assert not (tmp_path / "new.gguf").exists()


def test_files_of_other_alignment_are_not_mixed(tmp_path, capsys):
    base, donor = _small(tmp_path / "base.gguf"), tmp_path / "donor.gguf"
    aligned = ("general.alignment", ValueType.UINT32, 64)
    write_hollow(donor, [*metadata_of(SMALL), aligned], tensors_of(SMALL))
    os.truncate(donor, 2 * donor.stat().st_size)
    assert _splice("--q4-layers", "1", "--out", tmp_path / "new.gguf", base=base, donor=donor) == 1
    assert "they are aligned to 32 and 64 bytes" in capsys.readouterr().err


@pytest.mark.parametrize("layer", [0, 2])
def test_the_same_shape_with_other_weights_is_another_model(tmp_path, capsys, layer):
    """Layer 0 is routed by a table, layer 2 by scores."""
    other = tmp_path / "other.gguf"
    content = bytearray(tiny_q4().read_bytes())
    name = f"blk.{layer}.ffn_gate_tid2eid.weight" if layer == 0 else f"blk.{layer}.ffn_gate_inp.weight"
    with GgufFile.open(tiny_q4()) as gguf:
        content[gguf.tensors[name].offset] ^= 1
    other.write_bytes(content)
    assert _splice("--q4-layers", layer, "--out", tmp_path / "new.gguf", donor=other) == 1
    assert f"the tensor '{name}' has other numbers in each" in capsys.readouterr().err
    # Another layer's choice does not look at it.
    assert _splice("--q4-layers", "4", "--dry-run", "--out", tmp_path / "new.gguf", donor=other) == 0


def test_a_donor_that_is_cut_off_is_refused(tmp_path, capsys):
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(tiny_q4().read_bytes()[:-100_000])
    assert _splice("--q4-layers", "1", "--out", tmp_path / "new.gguf", donor=cut) == 1
    [line] = capsys.readouterr().err.splitlines()
    assert "the file is cut off or damaged" in line


def test_lists_of_layers():
    assert parse_layers("3, 37-42,3,40", 43) == (3, 37, 38, 39, 40, 41, 42)
    for wrong in ("", "a", "3-", "-3", "1-2-3", "5-4", "43", "0-43", "٣", "1,,2", "9999999"):
        with pytest.raises(Exception, match="is no "):
            parse_layers(wrong, 43)
