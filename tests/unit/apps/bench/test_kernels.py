"""`ds4 bench --kernels`: its table, its sums, and what it says where there is no Metal."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from apps.bench import command
from apps.bench.kernels import COLUMNS, write_kernel_times
from apps.cli import main
from shared.errors import BackendUnavailable


def record(operation: str, seconds: float, times: float, **others: Any) -> dict[str, Any]:
    """Of 1,000 bytes, which the device copies in a microsecond."""
    return {
        "tokens": 1,
        "context": 2048,
        "operation": operation,
        "use": "layers, all",
        "times": times,
        "bytes": 1000,
        "flops": 4,
        "kernel_seconds": seconds,
        "gb_per_second": 1000 / seconds / 1e9,
        "floor_seconds": 1e-6,
        "ratio": seconds / 1e-6,
        "runs_as": "kernel",
        "copy_gb_per_second": 1.0,
    } | others


RECORDS = [
    record("route", 2e-6, 3.0),
    record("top_k", 4e-6, 0.25),
    record("route", 5e-3, 2.0, tokens=100),
]


def written(*, as_json: bool) -> tuple[str, list[str]]:
    output, said = io.StringIO(), list[str]()
    write_kernel_times(iter(RECORDS), output, as_json=as_json, say=said.append)
    return output.getvalue(), said


def test_the_table_has_a_line_for_each_record() -> None:
    table, _ = written(as_json=False)
    lines = list(csv.DictReader(io.StringIO(table)))
    assert [line["operation"] for line in lines] == ["route", "top_k", "route"]
    assert tuple(lines[0]) == COLUMNS
    assert lines[1] == {
        "tokens": "1",
        "context": "2048",
        "operation": "top_k",
        "use": "layers, all",
        "runs_as": "kernel",
        "times": "0.25",
        "bytes": "1000",
        "microseconds": "4",
        "gb_per_second": "0.25",
        "floor_microseconds": "1",
        "ratio": "4",
    }


def test_each_line_is_there_before_the_next_is_measured() -> None:
    output = io.StringIO()

    def records() -> Iterator[dict[str, Any]]:
        yield RECORDS[0]
        assert "route" in output.getvalue()
        yield RECORDS[1]

    write_kernel_times(records(), output, as_json=False, say=lambda line: None)
    assert output.getvalue().count("\n") == 3


def test_sums_count_each_call_as_often_as_a_step_has_it() -> None:
    text, said = written(as_json=True)
    found = json.loads(text)
    one, many = found["steps"]
    assert one["milliseconds"] == pytest.approx(3 * 2e-3 + 0.25 * 4e-3)
    assert one["floor_milliseconds"] == pytest.approx(3.25e-3)
    assert one["tokens_per_second"] == pytest.approx(1e3 / 7e-3)
    assert (many["tokens"], many["tokens_per_second"]) == (100, pytest.approx(100 / 10e-3))
    assert found["copy_gb_per_second"] == 1.0
    assert found["rows"][0]["flops"] == 4
    assert len(said) == 3 + 2
    assert "142857.14 t/s" in said[3]


def without_metal(monkeypatch: pytest.MonkeyPatch) -> None:
    mx = pytest.importorskip("mlx.core")
    monkeypatch.setattr(mx.metal, "is_available", lambda: False)


def test_without_metal_one_line_says_what_would_help(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    without_metal(monkeypatch)
    assert main(["bench", "--kernels"]) == 1
    output, errors = capsys.readouterr()
    assert not output
    assert errors.count("\n") == 1
    assert "there is no Metal here" in errors
    assert "Flash's shapes" in errors


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--ctx-max", "1000"], "--ctx-max must be a multiple of 128"),
        (["--backend", "reference"], "--backend mlx"),
        (["--prompt-file", "x"], "--kernels takes no --prompt-file: it goes with --backend, --ctx-max, "),
        (["--quality"], "takes no --quality"),
        (["-m", "x.gguf"], "takes no --model"),
        (["--load", "copy"], "takes no --load"),
        (["--ctx-start", "128"], "takes no --ctx-start"),
        (["--tokens", "8"], "takes no --gen-tokens"),
        (
            ["--ctx-max", "256", "--prefill-chunk", "257"],
            "--prefill-chunk must lie between 2 and --ctx-max 256",
        ),
        (["--prefill-chunk", "1"], "--prefill-chunk must lie between"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "--kernels", *arguments]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1


def test_the_command_hands_over_context_and_chunk(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[tuple[int, int | None]] = []

    def kernel_times(context: int, chunk: int | None, clock: object) -> Iterator[dict[str, Any]]:
        asked.append((context, chunk))
        return iter(RECORDS)

    monkeypatch.setattr(command, "kernel_times", kernel_times)
    file = tmp_path / "kernels.csv"
    assert main(["bench", "--kernels", "--ctx-max", "2048", "--csv", str(file)]) == 0
    assert main(["bench", "--kernels", "--json", "--prefill-chunk", "512"]) == 0
    assert asked == [(2048, None), (32768, 512)]
    assert file.read_text(encoding="utf-8").startswith(",".join(COLUMNS))
    assert len(json.loads(capsys.readouterr().out)["rows"]) == len(RECORDS)


def test_times_are_taken_with_the_settings_of_an_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mlx.core")
    from apps.backend import kernel_times

    prepared: list[bool] = []
    monkeypatch.setattr("ds4mlx.settings.prepare_environment", lambda: prepared.append(True))
    monkeypatch.setattr("ds4mlx.costs.measure.why_unmeasurable", lambda: "asked")
    with pytest.raises(BackendUnavailable, match="asked"):
        kernel_times(128, None, lambda: 0.0)
    assert prepared == [True]
