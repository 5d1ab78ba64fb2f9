"""What `ds4 doctor` reports, and when its exit code is 1."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from apps import cli, doctor
from apps.pull.targets import RECOMMENDED
from tests.support.golden import tiny_q2

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(autouse=True)
def working_directory(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)


def _report(capsys, *arguments):
    code = cli.main(["doctor", "--json", *arguments])
    return code, json.loads(capsys.readouterr().out)


def test_a_healthy_machine(capsys):
    code, report = _report(capsys, "-m", str(tiny_q2()), "--ctx", "4096")
    assert code == 0
    assert report["ok"] is True
    assert set(report["backends"]) == {"mlx", "cuda", "reference", "scripted"}
    assert report["backends"]["reference"]["ok"] is True
    assert "CuPy is not installed" in report["backends"]["cuda"]["text"]
    assert report["packages"]["versions"]["numpy"]
    assert report["model"]["path"] == str(tiny_q2())
    plan = report["memory_plan"]
    parts = plan["weight_bytes"] + plan["raw_bytes"] + plan["compressed_bytes"] + plan["scratch_bytes"]
    assert (plan["context"], plan["total_bytes"]) == (4096, parts)
    assert report["disk"]["free_bytes"] > 0
    assert report["memory"]["usable_bytes"] < report["memory"]["physical_bytes"]


def test_without_a_model_file_the_built_in_one_is_named(capsys):
    code, report = _report(capsys)
    assert code == 0
    assert f"ds4 pull {RECOMMENDED}" in report["model"]["text"]


@pytest.mark.parametrize("content", [None, b"nonsense"])
def test_a_bad_model_file_is_a_problem(capsys, tmp_path, content):
    path = tmp_path / "x.gguf"
    if content is not None:
        path.write_bytes(content)
    code, report = _report(capsys, "-m", str(path))
    assert (code, report["ok"], report["model"]["ok"]) == (1, False, False)
    assert "\n" not in report["model"]["text"]
    assert "memory_plan" not in report


def test_a_plan_that_does_not_fit_is_a_problem(capsys):
    arguments = ("-m", str(tiny_q2()), "--ctx", "1000000", "--simulate-memory", "1GB")
    code, report = _report(capsys, *arguments)
    assert (code, report["memory_plan"]["ok"]) == (1, False)
    assert "use --ctx" in report["memory_plan"]["text"]
    assert "simulated" in report["memory"]["text"]


def test_for_people_one_line_per_finding(capsys, monkeypatch):
    monkeypatch.setattr(
        doctor,
        "examine",
        lambda *_, **__: iter(
            [
                doctor.Finding("python", True, "3.13.1", {}),
                doctor.Finding("memory plan", False, "too large", {}),
                doctor.Finding("disk", None, "1 GiB free", {}),
            ]
        ),
    )
    assert cli.main(["doctor"]) == 1
    assert capsys.readouterr().out == (
        "python       ok       3.13.1\nmemory plan  PROBLEM  too large\ndisk         -        1 GiB free\n"
    )


def test_a_backend_that_is_installed_but_broken_is_a_problem(monkeypatch):
    monkeypatch.setattr(doctor, "why_unavailable", lambda name: None)
    monkeypatch.setitem(sys.modules, "mlx.core", None)
    (finding,) = [f for f in doctor._backends() if f.name == "backend mlx"]
    assert finding.ok is False
    assert finding.text.startswith("MLX is installed but does not start: ")


@pytest.mark.parametrize("broken", ["mlx", "mlx.core"])
def test_a_broken_backend_is_no_end_of_the_report(tmp_path, broken):
    """Whether the package itself or its inner part cannot be imported."""
    package = tmp_path / "mlx"
    package.mkdir()
    (package / "__init__.py").write_text("raise ImportError('no libmlx')" if broken == "mlx" else "")
    (package / "core.py").write_text("raise ImportError('no libmlx')")
    command = "import sys; from apps.cli import main; sys.exit(main(['doctor']))"
    done = subprocess.run(
        [sys.executable, "-c", command],
        env=os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (1, "")
    assert "MLX is installed but does not start: no libmlx" in done.stdout
    assert "\nmemory plan" in done.stdout


def test_a_switch_that_names_no_operation_is_told(capsys, monkeypatch):
    monkeypatch.setenv("DS4_KERNELS_OFF", "rout")
    _, report = _report(capsys, "-m", str(tiny_q2()))
    assert report["kernels"]["unknown"] == ["rout"]
    assert report["kernels"]["text"].endswith("; switched off, but no operation: rout")


def _operations(**reasons):
    return [
        {"operation": name, "kernels": [name], "status": "fallback" if reason else "kernel"}
        | {"reason": reason, "wanted": True}
        for name, reason in reasons.items()
    ]


def test_every_kernel_is_listed_with_its_status(capsys):
    _, report = _report(capsys, "-m", str(tiny_q2()))
    kernels = report["kernels"]
    assert kernels["ok"] is None
    for found in kernels["operations"]:
        assert found["kernels"], found
        assert found["status"] in ("kernel", "fallback")
        assert bool(found["reason"]) == (found["status"] == "fallback")
    assert "attend" in [found["operation"] for found in kernels["operations"]]


@pytest.mark.parametrize("strict", [False, True])
def test_a_failed_kernel_is_a_problem_only_when_strict(capsys, monkeypatch, strict):
    monkeypatch.setattr(doctor, "kernel_report", lambda: (_operations(route="off by 3", attend=""), []))
    code, report = _report(capsys, "-m", str(tiny_q2()), *(["--strict"] if strict else []))
    assert code == (1 if strict else 0)
    assert report["kernels"]["text"].startswith("1 of 2 operations run as kernels")
    assert "route: off by 3" in report["kernels"]["text"]


def test_kernels_that_all_run_are_no_news(capsys, monkeypatch):
    monkeypatch.setattr(doctor, "kernel_report", lambda: (_operations(route="", attend=""), []))
    code, report = _report(capsys, "-m", str(tiny_q2()), "--strict")
    assert code == 0
    assert report["kernels"]["text"] == "all 2 operations run as kernels"
