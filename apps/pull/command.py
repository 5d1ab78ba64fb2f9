"""`ds4 pull TARGET`: download a published model file, check it, and make it the default model."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

from apps.pull.download import DownloadError, Hub, HubFile, check_space, partial_bytes, verify
from apps.pull.targets import RECOMMENDED, REPOSITORY, TARGETS, Target
from shared.errors import UsageError

DEFAULT_LINK = Path("ds4flash.gguf")


def pull(
    target: Annotated[str | None, typer.Argument(help="What to download; see --list.")] = None,
    show_list: Annotated[bool, typer.Option("--list", help="List the targets and exit.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the list, or the result, as JSON.")] = False,
    folder: Annotated[
        Path, typer.Option("--dir", envvar="DS4_GGUF_DIR", help="Folder for model files.")
    ] = Path("gguf"),
    token: Annotated[
        str | None,
        typer.Option(envvar="HF_TOKEN", help="Hugging Face token; else the saved login.", show_default=False),
    ] = None,
    endpoint: Annotated[
        str | None,
        typer.Option(
            envvar="HF_ENDPOINT", help="Another hub, for example a mirror.", show_envvar=True, hidden=True
        ),
    ] = None,
) -> None:
    """Download a published model file, check it, and make it the default model."""
    if show_list:
        _print_list(as_json)
        return
    if target is None:
        raise typer.Exit(_print_usage())
    if target not in TARGETS:
        known = ", ".join(TARGETS)
        # Exit code 1, as with every target that cannot be had.
        raise DownloadError(f"no target named {target!r}; known: {known}")
    if os.environ.get("HF_HUB_OFFLINE", "") in ("1", "true", "yes"):
        raise UsageError("HF_HUB_OFFLINE is set, so nothing can be downloaded: unset it")
    chosen = TARGETS[target]
    paths = _pull_files(chosen, Hub(REPOSITORY, endpoint, token), folder)
    linked = _link_default(paths[0]) if chosen.kind == "model" else None
    _report(chosen, paths, linked, as_json)


def _pull_files(target: Target, hub: Hub, folder: Path) -> list[Path]:
    errors = Console(stderr=True, highlight=False, soft_wrap=True)
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name in target.files:
        path = folder / name
        if path.with_name(name + ".aria2").exists():
            raise DownloadError(
                f"{name}.aria2 shows an unfinished aria2 download: finish it with aria2, "
                "or delete both files and pull again"
            )
        facts = hub.describe(name)
        # Stands beside a file until its check has passed, so that an interrupted check is made up for.
        unchecked = path.with_name(name + ".unchecked")
        if path.exists() and path.stat().st_size != facts.size:
            raise DownloadError(
                f"{path} has {path.stat().st_size} bytes but the hub's file has {facts.size}: "
                "move it away or delete it, then pull again"
            )
        if path.exists() and not unchecked.exists():
            errors.print(f"{name} is already complete ({facts.size / 1e9:.1f} GB)")
        else:
            if not path.exists():
                check_space(folder, max(0, facts.size - partial_bytes(folder)))
                errors.print(f"downloading {name} ({facts.size / 1e9:.1f} GB) to {folder}")
                unchecked.touch()
                path = hub.fetch(name, folder)
            _verify_with_progress(path, facts, errors)
            unchecked.unlink(missing_ok=True)
        paths.append(path)
    return paths


def _verify_with_progress(path: Path, facts: HubFile, console: Console) -> None:
    columns = (TextColumn("checking SHA-256"), BarColumn(), DownloadColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("verify", total=facts.size)
        verify(path, facts, lambda count: progress.advance(task, count))
    checked = "size and SHA-256" if facts.sha256 else "size (the hub publishes no SHA-256)"
    console.print(f"checked {checked}")


def _link_default(path: Path) -> Path | None:
    """Point ./ds4flash.gguf at the file. A regular file of that name is left alone."""
    if DEFAULT_LINK.exists() and not DEFAULT_LINK.is_symlink():
        return None
    target = os.path.relpath(path.absolute(), DEFAULT_LINK.absolute().parent)
    temporary = DEFAULT_LINK.with_name(f"{DEFAULT_LINK.name}.tmp.{os.getpid()}")
    temporary.symlink_to(target)
    temporary.replace(DEFAULT_LINK)
    return DEFAULT_LINK


def _report(target: Target, paths: list[Path], linked: Path | None, as_json: bool) -> None:
    if as_json:
        record = {
            "target": target.name,
            "files": [str(path) for path in paths],
            "default": str(linked) if linked else None,
        }
        print(json.dumps(record))
        return
    files = " ".join(str(path) for path in paths)
    if linked:
        print(f"{linked} -> {files}; start with: ds4 chat")
    elif target.kind == "model":
        print(f"{DEFAULT_LINK} is a file of yours and was left alone; start with: ds4 chat -m {files}")
    elif target.kind == "draft":
        print(f"{files} is a draft block; this version of ds4 cannot use it yet")
    else:
        print(f"{files}: for a model on two hosts; this version of ds4 cannot use it yet")


def _print_usage() -> int:
    print(
        f"usage: ds4 pull TARGET   (recommended: {RECOMMENDED}; all targets: ds4 pull --list)",
        file=sys.stderr,
    )
    return 1


def _print_list(as_json: bool) -> None:
    if as_json:
        records = [
            {
                "name": target.name,
                "files": list(target.files),
                "gigabytes": target.gigabytes,
                "memory": target.memory,
                "kind": target.kind,
                "note": target.note,
                "recommended": target.name == RECOMMENDED,
            }
            for target in TARGETS.values()
        ]
        print(json.dumps(records, indent=2))
        return
    rows = [("target", "disk", "memory", "what it is")]
    for target in TARGETS.values():
        mark = " (recommended)" if target.name == RECOMMENDED else ""
        rows.append((target.name, f"{target.gigabytes:g} GB", target.memory, target.note + mark))
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    for name, disk, memory, note in rows:
        print(f"{name:<{widths[0]}}  {disk:>{widths[1]}}  {memory:<{widths[2]}}  {note}")
