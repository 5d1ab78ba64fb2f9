"""The file of directions: its exact size, its byte order, and what is refused."""

import numpy as np
import pytest

from shared.errors import UsageError
from shared.steering.directions import Directions, read_directions, write_directions
from tests.support.shapes import toy_shape

SHAPE = toy_shape()
SIZE = SHAPE.layer_count * SHAPE.embedding_width


def _values():
    return np.arange(SIZE, dtype=np.float32).reshape(SHAPE.layer_count, SHAPE.embedding_width)


def test_layers_follow_each_other_in_little_endian(tmp_path):
    path = tmp_path / "v.f32"
    path.write_bytes(_values().astype("<f4").tobytes())
    found = read_directions(path, SHAPE)
    assert np.array_equal(found.values, _values())
    write_directions(tmp_path / "w.f32", found)
    assert (tmp_path / "w.f32").read_bytes() == path.read_bytes()
    assert [each.name for each in tmp_path.iterdir() if "tmp" in each.name] == []


def test_the_digest_is_of_the_bytes(tmp_path):
    values = _values()
    path = tmp_path / "v.f32"
    path.write_bytes(values.astype("<f4").tobytes())
    assert read_directions(path, SHAPE).digest == Directions.of(values.astype(np.float64)).digest
    values[0, 0] = np.nextafter(np.float32(1), np.float32(2))
    assert Directions.of(values).digest != read_directions(path, SHAPE).digest


@pytest.mark.parametrize("size", [0, 4 * SIZE - 1, 4 * SIZE + 4, 4 * SIZE + 1])
def test_another_size_is_refused(tmp_path, size):
    path = tmp_path / "v.f32"
    path.write_bytes(bytes(size))
    wanted = f"v.f32 has {size} bytes and this model needs {4 * SIZE} \\({SHAPE.layer_count} layers of"
    with pytest.raises(UsageError, match=wanted):
        read_directions(path, SHAPE)


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
def test_what_is_no_finite_number_is_refused(tmp_path, number):
    values = _values()
    values[2, 5] = number
    path = tmp_path / "v.f32"
    path.write_bytes(values.astype("<f4").tobytes())
    with pytest.raises(UsageError, match="numbers of layer 2 that are not finite"):
        read_directions(path, SHAPE)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(UsageError, match=r"cannot read the steering file .*gone\.f32: No such file"):
        read_directions(tmp_path / "gone.f32", SHAPE)
    with pytest.raises(UsageError, match="it is no regular file"):
        read_directions(tmp_path, SHAPE)
