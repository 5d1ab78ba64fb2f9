"""`ds4 pull` against a stand-in hub on loopback."""

from __future__ import annotations

import json
import logging
import random
from collections.abc import Iterator
from math import prod
from pathlib import Path

import huggingface_hub
import pytest

from apps.pull import command, download
from apps.pull.download import DownloadError, Hub, HubFile
from apps.pull.targets import RECOMMENDED, REPOSITORY, TARGETS
from shared.gguf.types import block_bytes, block_elements
from shared.model.known_shapes import FLASH, PRO
from shared.model.shape import ModelShape
from shared.model.tensors import tensor_table
from shared.quantise.recipe import Recipe, chosen_types
from tests.support.hub import StandInHub, stand_in_hub

TARGET = TARGETS[RECOMMENDED]
NAME = TARGET.files[0]
CONTENT = random.Random(1).randbytes(300_000)


@pytest.fixture
def hub() -> Iterator[StandInHub]:
    with stand_in_hub({name: CONTENT for target in TARGETS.values() for name in target.files}) as hub:
        yield hub


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    monkeypatch.delenv("HF_TOKEN", raising=False)
    # Its log handler keeps the stderr of the test that first used it.
    monkeypatch.setattr(logging.getLogger("huggingface_hub"), "disabled", True)
    monkeypatch.setattr(logging.getLogger("huggingface_hub.file_download"), "disabled", True)


def pull(hub: StandInHub, target: str = RECOMMENDED, *, as_json: bool = False) -> None:
    command.pull(target, False, as_json, Path("gguf"), None, hub.url)


def test_a_model_is_fetched_checked_and_becomes_the_default(
    hub: StandInHub, capsys: pytest.CaptureFixture[str]
) -> None:
    pull(hub, as_json=True)
    result = json.loads(capsys.readouterr().out)
    assert result == {"target": RECOMMENDED, "files": [f"gguf/{NAME}"], "default": "ds4flash.gguf"}
    assert Path("ds4flash.gguf").is_symlink()
    assert Path("ds4flash.gguf").read_bytes() == CONTENT


def test_a_complete_file_is_not_fetched_again(hub: StandInHub, capsys: pytest.CaptureFixture[str]) -> None:
    pull(hub)
    hub.requests.clear()
    pull(hub)
    assert "already complete" in capsys.readouterr().err
    assert all(method == "HEAD" for method, _, _ in hub.requests)


def test_an_interrupted_transfer_goes_on_where_it_stopped(
    hub: StandInHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "DOWNLOAD_CHUNK_SIZE", 10_000)
    hub.cut_after = 100_000
    # The client itself asks for the rest; whichever attempt it is, no byte travels twice.
    pull(hub)
    ranges = [wanted for method, _, wanted in hub.requests if method == "GET"]
    assert ranges == [None, "bytes=100000-"]
    assert Path("gguf", NAME).read_bytes() == CONTENT


def test_an_interrupted_check_is_made_up_for(
    hub: StandInHub, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(command, "verify", interrupted)
        with pytest.raises(KeyboardInterrupt):
            pull(hub)
    assert not Path("ds4flash.gguf").exists()
    (Path("gguf") / NAME).write_bytes(bytes(len(CONTENT)))
    with pytest.raises(DownloadError, match="arrived damaged"):
        pull(hub)
    pull(hub)
    assert "checked size and SHA-256" in capsys.readouterr().err
    assert not list(Path("gguf").glob("*.unchecked"))


def test_a_damaged_file_is_set_aside(hub: StandInHub) -> None:
    hub.wrong_checksum = True
    with pytest.raises(DownloadError, match=r"arrived damaged: its SHA-256 .* moved to .*\.bad"):
        pull(hub)
    assert not Path("gguf", NAME).exists()
    assert not Path("ds4flash.gguf").exists()


def test_a_file_of_another_size_is_never_overwritten(hub: StandInHub) -> None:
    Path("gguf").mkdir()
    Path("gguf", NAME).write_bytes(b"mine")
    with pytest.raises(DownloadError, match=r"has 4 bytes but the hub's file has 300000: move it away"):
        pull(hub)
    assert Path("gguf", NAME).read_bytes() == b"mine"


def test_a_full_disk_is_refused_before_the_transfer(hub: StandInHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download.shutil, "disk_usage", lambda _: type("Usage", (), {"free": 1000})())
    with pytest.raises(DownloadError, match=r"not enough disk space in gguf: 0\.0 GB to download"):
        pull(hub)
    assert all(method == "HEAD" for method, _, _ in hub.requests)


def test_interrupted_bytes_count_as_present(tmp_path: Path) -> None:
    parts = tmp_path / ".cache" / "huggingface" / "download"
    parts.mkdir(parents=True)
    (parts / "x.incomplete").write_bytes(b"12345")
    assert download.partial_bytes(tmp_path) == 5
    download.check_space(tmp_path, 10, free=lambda _: 1024**3 + 10)
    with pytest.raises(DownloadError):
        download.check_space(tmp_path, 11, free=lambda _: 1024**3 + 10)


def test_an_aria2_leftover_stops_the_pull(hub: StandInHub) -> None:
    Path("gguf").mkdir()
    Path("gguf", NAME + ".aria2").touch()
    with pytest.raises(DownloadError, match="unfinished aria2 download"):
        pull(hub)


def test_drafts_and_halves_do_not_become_the_default(
    hub: StandInHub, capsys: pytest.CaptureFixture[str]
) -> None:
    pull(hub, "mtp")
    assert "draft block" in capsys.readouterr().out
    pull(hub, "pro-q4-split")
    assert not Path("ds4flash.gguf").exists()
    assert all(Path("gguf", name).exists() for name in TARGETS["pro-q4-split"].files)


def test_a_real_file_named_like_the_default_is_left_alone(
    hub: StandInHub, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("ds4flash.gguf").write_bytes(b"mine")
    pull(hub)
    assert Path("ds4flash.gguf").read_bytes() == b"mine"
    assert "was left alone" in capsys.readouterr().out


def test_what_cannot_be_had_is_said_in_one_line(hub: StandInHub) -> None:
    with pytest.raises(DownloadError, match=r"no target named 'q9'; known: ds4f-q2, .*"):
        pull(hub, "q9")
    hub.files.clear()
    with pytest.raises(DownloadError, match="has no such file") as caught:
        pull(hub)
    assert "\n" not in str(caught.value)


def test_an_unreachable_hub_is_one_line() -> None:
    with pytest.raises(DownloadError, match="run the same command again") as caught:
        Hub(REPOSITORY, "http://127.0.0.1:9").describe(NAME)
    assert "\n" not in str(caught.value)


def test_the_list_names_every_target(capsys: pytest.CaptureFixture[str]) -> None:
    command.pull(None, True, True)
    records = json.loads(capsys.readouterr().out)
    assert [record["name"] for record in records] == list(TARGETS)
    command.pull(None, True, False)
    assert "(recommended)" in capsys.readouterr().out


def test_a_size_without_checksum_is_still_checked(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"123")
    download.verify(path, HubFile("model.gguf", 3, None))
    with pytest.raises(DownloadError, match="it has 3 bytes, the hub says 4"):
        download.verify(path, HubFile("model.gguf", 4, None))


@pytest.mark.parametrize(
    ("recipe", "shape", "names"),
    [
        ("q2", FLASH, ("ds4f-q2", "q2-imatrix", "q2")),
        ("q2-q4", FLASH, ("ds4f-q2-q4", "q2-q4-imatrix")),
        ("q4", FLASH, ("ds4f-q4", "q4-imatrix", "q4")),
        ("mxfp4", FLASH, ("ds4f-mxfp4",)),
        ("q2", PRO, ("pro-q2-imatrix", "pro-imatrix", "pro")),
        ("q4", PRO, ("pro-q4-split",)),
    ],
)
def test_listed_sizes_are_those_of_the_tensors_in_gigabytes(
    recipe: str, shape: ModelShape, names: tuple[str, ...]
) -> None:
    types = chosen_types(Recipe(recipe), shape)
    size = 0
    for spec in tensor_table(shape):
        kind = types[spec.name]
        size += prod(spec.dims) // block_elements(kind) * block_bytes(kind)
    for name in names:
        assert TARGETS[name].gigabytes == pytest.approx(size / 1e9, abs=0.5), name
    if shape is FLASH:
        page = (Path(__file__).parents[4] / "docs" / "quantize.md").read_text()
        [row] = [line for line in page.splitlines() if line.startswith(f"| `{recipe}`")]
        assert f" {round(size / 1e9)} GB" in row
