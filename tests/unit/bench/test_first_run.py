"""The script for the first Mac runs here too, and its page says what it does."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

mx = pytest.importorskip("mlx.core")

from bench import first_run, kernel_checks  # noqa: E402
from ds4mlx.kernels.kernel import Example  # noqa: E402
from ds4mlx.kernels.registry import OPERATIONS  # noqa: E402
from tests.ksim import clang_missing, metal_kernel  # noqa: E402

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs/first-run-on-a-mac.md").read_text(encoding="utf-8")
NEEDS_METAL = {
    *(f"examples {name}" for name in OPERATIONS),
    *("kernel times", "bench without kernels", "answer without kernels"),
}
simulated = pytest.mark.skipif(clang_missing() is not None, reason=str(clang_missing()))


@pytest.fixture
def without_metal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever this machine has, its device says that there is none."""
    run = first_run.FirstRun._run

    def told(self: first_run.FirstRun, name: str, *arguments: Any, **options: Any) -> first_run.Step:
        step = run(self, name, *arguments, **options)
        return replace(step, result={**step.result, "metal": False}) if name == "device" else step

    monkeypatch.setattr(first_run.FirstRun, "_run", told)


@pytest.mark.usefixtures("without_metal")
def test_a_quick_run_without_metal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DS4_MODEL", "/Users/somebody/no such model.gguf")
    output = tmp_path / "run.json"
    assert first_run.main(["--quick", "-o", str(output)]) == 0
    text = output.read_text(encoding="utf-8")
    report = json.loads(text)
    steps = {step["name"]: step for step in report["steps"]}
    assert {name for name, step in steps.items() if step["status"] == "left out"} == NEEDS_METAL
    assert {name for name, step in steps.items() if step["status"] == "ok"} == {
        "device",
        "doctor",
        "bench",
        "answer",
    }
    assert steps["doctor"]["result"]["model"]["path"] == "CHECKOUT/apps/models/embedded.gguf"
    assert steps["bench"]["result"]["rows"][0]["gen_tokens"] == 8
    assert report["machine"]["commit"]
    for folder in (str(ROOT), str(Path.home()) + "/", str(tmp_path), "somebody"):
        assert folder not in text


def test_a_file_that_cannot_be_written_is_told_before_anything_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        first_run.main(["-o", str(tmp_path / "none" / "run.json")])
    shown = capsys.readouterr()
    assert "there is no such folder" in shown.err
    assert shown.out == ""


@pytest.mark.parametrize(
    "given", [[], ["nonsense"], ["examples"], ["examples", "nonsense"], ["contract", "test_launches"]]
)
def test_wrong_arguments_of_the_checks_are_told(given: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        kernel_checks.main(given)
    assert "usage: " in capsys.readouterr().err


def test_a_step_that_fails_or_hangs_costs_only_itself(tmp_path: Path) -> None:
    run = first_run.FirstRun(tmp_path, quick=True)
    failed = run._run("failing", ["-c", "print('to be seen'); raise SystemExit(3)"], 60)
    assert (failed.status, failed.exit_code, failed.output) == ("failed", 3, "to be seen\n")
    found = run._run("wrong", ["-c", 'print(\'[{"ok": true}, {"ok": false}]\')'], 60)
    assert (found.status, found.exit_code) == ("failed", 0)
    assert run._run("hanging", ["-c", "while True: pass"], 1).status == "timed out"


def test_folders_are_hidden(tmp_path: Path) -> None:
    hidden = first_run.hidden_paths(tmp_path)
    text = f"{ROOT}/apps, {tmp_path}/x, {Path.home()}/y, '/Users/other one/z', /home/other/z"
    shown = first_run.without_paths(text, hidden)
    assert shown.startswith("CHECKOUT/apps, WORK/x, HOME/y, 'HOME")
    assert shown.endswith(", HOME/z")


def recording(*steps: dict[int, float]) -> dict[str, Any]:
    """Of a continuation that takes the token with the largest logit in each step."""
    return {
        "steps": [
            {
                "selected": {"id": max(step, key=step.__getitem__)},
                "top_logprobs": [{"token": {"id": token}, "logit": logit} for token, logit in step.items()],
            }
            for step in steps
        ]
    }


def test_answers_are_compared_up_to_the_first_other_token() -> None:
    one = recording({7: 8.0, 2: 4.0}, {5: 3.0, 6: 2.75}, {1: 1.0})
    other = recording({7: 7.75, 3: 5.0}, {6: 3.0, 5: 2.0}, {1: 5.0})
    assert first_run.agreement(one, one)["same_tokens"] == 3
    found = first_run.agreement(one, other)
    # The step that chose differently is looked at, what follows it is not.
    assert found == {"tokens": [3, 3], "same_tokens": 1, "largest_difference": 0.125}


@simulated
def test_examples_in_detail() -> None:
    [found] = kernel_checks.examples("stack_rows", metal_kernel)
    assert (found["ok"], found["same_bits_again"], found["differences"]) == (True, True, [0.0])
    every = kernel_checks.examples("hyper_mix", metal_kernel)
    assert [entry["ok"] for entry in every] == [True, True]
    assert all(entry["differences"][0] <= entry["tolerance"] for entry in every)


def example(kernel: Callable[[Any], Any], tolerance: float) -> dict[str, Any]:
    doubled = Example("three", lambda maker: kernel, lambda x: x * 2, (mx.array([1.0, 2.0, 4.0]),), tolerance)
    return kernel_checks.compared(doubled, lambda **_: kernel)


def test_what_differs_is_measured() -> None:
    assert example(lambda x: x * 2 + 0.5, 0.1) == {
        "ok": True,
        "differences": [0.0625],
        "same_bits_again": True,
        "milliseconds": pytest.approx([0, 0], abs=1e9),
    }
    assert not example(lambda x: x * 2 + 0.5, 0.06)["ok"]
    assert example(lambda x: (x * 2)[None], 1.0)["differences"] == [None]
    assert example(lambda x: x * mx.nan, 1.0)["differences"] == [None]
    added = iter((0.0, 1e-3))
    unsteady = example(lambda x: x * 2 + next(added), 0.1)
    assert (unsteady["ok"], unsteady["same_bits_again"]) == (False, False)


def test_a_compiler_that_refuses_is_quoted() -> None:
    def refuse(**_: Any) -> Any:
        raise RuntimeError("line 3: error: address space")

    [found] = kernel_checks.examples("stack_rows", refuse)
    assert found["failure"] == "RuntimeError: line 3: error: address space"
    assert not found["ok"]
    [found] = kernel_checks.contract({"all rows": lambda maker: maker()}, refuse)
    assert (found["case"], found["ok"]) == ("all rows", False)


@simulated
def test_contracts_are_those_of_the_kernel_tests() -> None:
    name, check = next(iter(kernel_checks.checks_of("test_hyper_mix").items()))
    [found] = kernel_checks.contract({name: check}, metal_kernel)
    assert found["ok"], found
    covered = {module.removeprefix("test_") for module in first_run.contract_modules()}
    assert set(OPERATIONS) <= covered


def test_the_page_lists_the_steps() -> None:
    rows = PAGE.split("<!-- steps -->\n")[1].split("\n\n")[0].splitlines()[2:]
    told = [row.split("|")[1].strip().strip("`").split(" OPERATION")[0].split(" MODULE")[0] for row in rows]
    source = (ROOT / "bench/first_run.py").read_text(encoding="utf-8")
    named = {name for name in told if f'"{name}"' in source or f'f"{name} ' in source}
    assert set(told) == named
    for test in first_run.TESTS:
        assert (ROOT / test).exists()
        assert test in PAGE
    assert f"last {first_run.TAIL:,} characters" in PAGE
    for name in {name for _, name in first_run.hidden_paths(ROOT)}:
        assert re.search(rf"\b{name}\b", PAGE), name
