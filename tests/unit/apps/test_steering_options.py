"""The options that steer: what they mean together, what is refused, and that they reach the engine."""

from pathlib import Path

import numpy as np
import pytest

from apps import cli
from apps.backend import open_engine
from apps.options import EngineOptions
from apps.steering import is_steered, steerable, steering_of, weights_fingerprint
from apps.steering_options import SteeringRequest, steering_request
from shared.errors import UsageError
from tests.support.golden import tiny_q2
from tests.support.scripts import script_file, scripted, turn

FILE = Path("v.f32")
TINY = ["-m", str(tiny_q2()), "--backend", "reference", "-p", "Hi"]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ((None, None), (1.0, 0.0)),
        ((0.5, None), (0.5, 0.0)),
        ((None, -2.0), (0.0, -2.0)),
        ((0.0, None), (0.0, 0.0)),
        ((None, 0.0), (0.0, 0.0)),
        ((1.0, 2.0), (1.0, 2.0)),
    ],
)
def test_scales_that_were_not_given(given, expected):
    assert steering_request(FILE, *given) == SteeringRequest(FILE, *expected)
    assert steering_request(None, 0.0, None) is None


def test_the_engine_is_steered(tmp_path):
    values = np.random.default_rng(0).standard_normal((6, 256)).astype("<f4")
    (tmp_path / "v.f32").write_bytes(values.tobytes())
    said = []
    options = EngineOptions(
        model=tiny_q2(), backend="reference", steering=SteeringRequest(tmp_path / "v.f32", 0.5, -1)
    )
    engine = open_engine(options, say=said.append)
    assert said[-1] == f"steering by {tmp_path / 'v.f32'}: ffn 0.5, attn -1"
    steering = steering_of(engine)
    assert steering is not None
    assert (steering.feed_forward, steering.attention) == (0.5, -1)
    assert np.array_equal(steering.directions.values, values)
    assert is_steered(engine)
    assert engine.fingerprint != weights_fingerprint(engine)
    engine.close()


def test_an_engine_without_weights_is_not_steered():
    engine = scripted(turn("Hm."))
    assert steering_of(engine) is None
    assert not is_steered(engine)
    assert weights_fingerprint(engine) == engine.fingerprint
    with pytest.raises(UsageError, match="the scripted backend computes nothing to be steered"):
        steerable(engine)


def _bytes(folder, name, values):
    path = folder / name
    path.write_bytes(np.asarray(values, "<f4").tobytes())
    return str(path)


@pytest.mark.parametrize("file", ["--dir-steering-file", "--directional-steering-file"])
def test_a_wrong_file_is_refused_before_the_model_is_loaded(tmp_path, capsys, file):
    values = np.zeros((6, 256))
    values[3, 7] = np.nan
    for path, fault in (
        (_bytes(tmp_path, "short", np.zeros(7)), "has 28 bytes and this model needs 6144 (6 layers of 256"),
        (_bytes(tmp_path, "nan", values), "holds numbers of layer 3 that are not finite"),
        (str(tmp_path / "gone"), "No such file or directory"),
    ):
        assert cli.main(["chat", *TINY, file, path]) == 2
        printed = capsys.readouterr()
        assert printed.out == ""
        assert fault in printed.err.splitlines()[-1]


@pytest.mark.parametrize("command", ["chat", "serve"])
@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (["--dir-steering-ffn", "0.5"], "--dir-steering-ffn 0.5 needs --dir-steering-file FILE.f32"),
        (["--directional-steering-attn", "-1"], "--dir-steering-attn -1 needs --dir-steering-file FILE.f32"),
        (["--dir-steering-ffn", "nan"], "--dir-steering-ffn should be less than or equal to 100"),
        (["--dir-steering-ffn", "101"], "--dir-steering-ffn"),
    ],
)
def test_scales_without_a_file_or_out_of_bounds(capsys, command, words, fault):
    assert cli.main([command, *words]) == 2
    assert capsys.readouterr().err.startswith(f"ds4: {fault}")


@pytest.mark.parametrize("command", ["chat", "serve"])
def test_commands_hand_the_request_on(monkeypatch, tmp_path, command):
    asked = []
    monkeypatch.setattr("apps.chat.run.Run.inspect", lambda run: asked.append(run.engine_options))
    monkeypatch.setattr(
        "apps.serve.start.serve_until_stopped", lambda options, *_, **__: asked.append(options)
    )
    words = [*(["--inspect"] if command == "chat" else []), "--dir-steering-file", str(tmp_path / "v.f32")]
    assert cli.main([command, *words, "--dir-steering-attn", "-0.5"]) == 0
    assert asked[0].steering == SteeringRequest(tmp_path / "v.f32", 0.0, -0.5)


def test_a_script_is_not_steered(tmp_path, capsys):
    script = ["--script", str(script_file(tmp_path, turn("Hm."))), "-p", "Hi"]
    assert cli.main(["chat", *script, "--dir-steering-file", "v.f32"]) == 2
    assert "the scripted backend computes nothing to be steered" in capsys.readouterr().err
