"""The program on this backend, from the command line to the last token."""

from __future__ import annotations

import io
import sys

import pytest

from apps import cli
from ds4cuda import availability, engine
from tests.cuda.cupy_standin import CupyStandin
from tests.cuda.models import needs_simulator
from tests.support.golden import tiny_q2


@pytest.fixture
def simulated_gpu(monkeypatch: pytest.MonkeyPatch) -> CupyStandin:
    """A machine with everything the backend needs; its GPU is the simulator."""
    cupy = CupyStandin()
    for module in (availability, engine):
        monkeypatch.setattr(module, "why_unavailable", lambda: None)
        monkeypatch.setattr(module, "open_cupy", lambda: cupy)
    return cupy


@needs_simulator
def test_chat_answers(simulated_gpu: CupyStandin, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--nothink", "--temp", "0", "-n", "2", "--ctx", "256", "-p", "Hi"]
    answers = []
    for backend in (["cuda"], ["reference", "--activation", "actq"]):
        assert cli.main(["chat", "-m", str(tiny_q2()), *arguments, "--backend", *backend]) == 0
        answers.append(capsys.readouterr().out)
    assert answers[0] == answers[1] != ""
    assert "project8" in simulated_gpu.launches


def test_the_doctor_names_the_gpu(simulated_gpu: CupyStandin, capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["doctor", "-m", str(tiny_q2())])
    assert "runs on Simulated GPU, 32 GiB" in capsys.readouterr().out


def test_what_is_missing_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)  # not installed, on a machine that can run CUDA too
    assert cli.main(["chat", "-m", str(tiny_q2()), "--backend", "cuda", "-p", "Hi"]) == 1
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err == f"ds4: {availability.why_unavailable()}\n"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))
    assert cli.main(["chat", "--backend", "cuda"]) == 1
    assert capsys.readouterr().err == told.err
