"""What the options about kept states come to, and which of them contradict each other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import apps.serve.start
from apps.cli import run
from apps.options import EngineOptions
from apps.serve.settings import DEFAULT_CHECKPOINT_BYTES, DiskSettings, ServerSettings
from shared.errors import UsageError
from shared.kv.store.policy import StoreSettings

MIB = 2**20


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[tuple[EngineOptions, ServerSettings]]:
    """What `ds4 serve` would have started with."""
    starts: list[tuple[EngineOptions, ServerSettings]] = []

    def start(options: EngineOptions, settings: ServerSettings, *_: Any, **__: Any) -> None:
        starts.append((options, settings))

    monkeypatch.setattr(apps.serve.start, "serve_until_stopped", start)
    return starts


def _disk(started: list[tuple[EngineOptions, ServerSettings]], *words: str) -> DiskSettings | None:
    run("serve", words)
    return started[-1][1].disk


def test_states_are_stored_unless_the_user_says_no(started: list[Any]) -> None:
    assert _disk(started) == DiskSettings(None, StoreSettings())
    options, settings = started[-1]
    assert (settings.sessions, settings.checkpoint_bytes) == (1, DEFAULT_CHECKPOINT_BYTES)
    assert (options.sessions, options.checkpoint_bytes) == (1, DEFAULT_CHECKPOINT_BYTES)
    assert _disk(started, "--no-kv-disk") is None


def test_the_folder_may_be_in_the_home(started: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/somewhere")
    monkeypatch.setenv("DS4_KV_DISK_DIR", "~/kv")
    assert _disk(started) == DiskSettings(Path("/somewhere/kv"), StoreSettings())


def test_a_folder_without_a_name_is_refused_and_a_variable_without_a_value_is_none(
    started: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for words in (["--kv-disk-dir", ""], ["--kv-cache-dir="]):
        with pytest.raises(UsageError, match="--kv-disk-dir needs the name of a folder: leave it out"):
            run("serve", words)
    assert not started
    monkeypatch.setenv("DS4_KV_DISK_DIR", "")
    assert _disk(started) == DiskSettings()


def test_every_option_arrives(started: list[Any]) -> None:
    words = (
        "--kv-disk-dir=x --kv-disk-space-mb=77 --kv-cache-min-tokens=600 --kv-cache-cold-max-tokens=700 "
        "--kv-cache-continued-interval-tokens=800 --kv-cache-boundary-trim-tokens=9 "
        "--kv-cache-boundary-align-tokens=10 --kv-cache-reject-different-quant --kv-no-fsync"
    )
    assert _disk(started, *words.split(), "--sessions", "3", "--kv-checkpoint-mb", "40") == DiskSettings(
        Path("x"),
        StoreSettings(
            min_tokens=600,
            cold_max_tokens=700,
            continued_interval=800,
            trim_tokens=9,
            align_tokens=10,
            budget_bytes=77 * MIB,
            reject_other_quant=True,
            durable=False,
        ),
    )
    for part in started[-1]:
        assert (part.sessions, part.checkpoint_bytes) == (3, 40 * MIB)


def test_other_spellings_and_variables(started: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    disk = _disk(started, "--kv-cache-dir", "y", "--kv-cache-space-mb", "5", "--batched-session", "2")
    assert disk == DiskSettings(Path("y"), StoreSettings(budget_bytes=5 * MIB))
    assert started[-1][1].sessions == 2
    monkeypatch.setenv("DS4_KV_DISK_DIR", "z")
    monkeypatch.setenv("DS4_KV_CACHE_MIN_TOKENS", "1000")
    assert _disk(started) == DiskSettings(Path("z"), StoreSettings(min_tokens=1000))


def test_no_budget_means_the_usual_one(started: list[Any]) -> None:
    assert _disk(started, "--kv-disk-space-mb", "0") == DiskSettings()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--no-kv-disk --kv-disk-dir x", "--no-kv-disk contradicts --kv-disk-dir: give one of them"),
        (
            "--kv-cache-cold-max-tokens 511",
            "--kv-cache-cold-max-tokens 511 is below --kv-cache-min-tokens 512: raise it, or give 0 to save "
            "no new prompts",
        ),
        ("--no-kv-disk --kv-cache-cold-max-tokens 1", "--kv-cache-cold-max-tokens 1 is below"),
        ("--kv-cache-min-tokens 0", "--kv-cache-min-tokens"),
        ("--kv-disk-space-mb -1", "--kv-disk-space-mb"),
        ("--kv-disk-space-mb 1.5", "--kv-disk-space-mb"),
        ("--kv-disk-space-mb 9999999999999", "--kv-disk-space-mb"),
        ("--sessions 0", "--sessions"),
        ("--sessions 257", "--sessions"),
        ("--kv-checkpoint-mb -1", "--kv-checkpoint-mb"),
        ("--kv-cache-boundary-trim-tokens -1", "--kv-cache-boundary-trim-tokens"),
    ],
)
def test_what_cannot_be_is_refused(started: list[Any], words: str, message: str) -> None:
    with pytest.raises(UsageError) as refused:
        run("serve", words.split())
    assert message in str(refused.value)
    assert not started


def test_no_points_to_go_back_to_are_a_choice(started: list[Any]) -> None:
    run("serve", ["--kv-checkpoint-mb", "0"])
    assert started[-1][1].checkpoint_bytes == 0


def test_no_cold_saves_is_a_choice(started: list[Any]) -> None:
    assert _disk(started, "--kv-cache-cold-max-tokens", "0") == DiskSettings(
        None, StoreSettings(cold_max_tokens=0)
    )
