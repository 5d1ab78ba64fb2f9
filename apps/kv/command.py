"""`ds4 kv`: the command line. Exit code 0: fine, 1: a problem was found, 2: wrong usage."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import typer

from apps.console import console, say
from apps.kv.places import find_file, find_files, places
from apps.output_file import check_writable
from apps.serve.kv_options import DEFAULT_SPACE_MB, MIB, DiskSpaceOption
from shared.errors import UsageError

_PIPE_WIDTH = 160

app = typer.Typer(
    add_completion=False,
    invoke_without_command=True,
    help="Look at saved states, check them and clean them up.",
    context_settings={"help_option_names": ["-h", "--help"]},
)

DirectoryArgument = Annotated[
    Path | None, typer.Argument(metavar="DIR", help="A folder of cache files.", show_default="all of ours")
]
DirectoryOption = Annotated[
    Path | None,
    typer.Option("--dir", metavar="DIR", help="A folder of cache files.", show_default="all of ours"),
]
FileArgument = Annotated[str, typer.Argument(metavar="FILE", help="A path, or the first digits of a name.")]
FilesArgument = Annotated[
    list[str] | None, typer.Argument(metavar="FILE", help="Paths, or the first digits of names.")
]
DoomedArgument = Annotated[
    list[str], typer.Argument(metavar="FILE", help="Paths, or the first digits of names.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
ForceOption = Annotated[bool, typer.Option("--force", help="Even where a running server holds the folder.")]
CheckModelOption = Annotated[
    Path | None,
    typer.Option("-m", "--model", metavar="FILE", help="Also check layout and tokens against this model."),
]


@app.callback()
def kv(context: typer.Context) -> None:
    """Look at saved states, check them and clean them up."""
    if context.invoked_subcommand is None:
        raise UsageError("give one of ls, show, verify, rm, gc, export-text (see `ds4 kv --help`)")


@app.command()
def ls(
    directory: DirectoryArgument = None, named: DirectoryOption = None, as_json: JsonOption = False
) -> int:
    """List saved states: those of `ds4 serve` for every model, and the sessions of `ds4 chat`."""
    from apps.kv.listing import list_place, listing_lines, listing_record

    if directory is not None and named is not None:
        raise UsageError("give the folder once: as an argument or with --dir")
    listings = [list_place(place) for place in places(directory or named)]
    if as_json:
        _print_json({"folders": [listing_record(listing) for listing in listings]})
    elif not listings:
        say("no saved states yet", on=console(sys.stdout))
    for listing in () if as_json else listings:
        _print(listing_lines(listing, time.time(), _width()))
    return int(any(entry.damaged for listing in listings for entry in listing.unusable))


@app.command()
def show(file: FileArgument, named: DirectoryOption = None, as_json: JsonOption = False) -> int:
    """Take one file apart: header, sections, payload, trailers."""
    from apps.kv.description import describe_file, description_lines, description_record

    found = describe_file(find_file(file, places(named)))
    if as_json:
        _print_json(description_record(found))
    else:
        _print(description_lines(found))
    return int(bool(found.payload_problem or found.trailer_problem))


@app.command()
def verify(
    files: FilesArgument = None,
    everything: Annotated[bool, typer.Option("--all", help="Every file of the folders.")] = False,
    named: DirectoryOption = None,
    model: CheckModelOption = None,
    as_json: JsonOption = False,
) -> int:
    """Check files: lengths, names, checksums, payloads. Exit code 1 if one is damaged."""
    from apps.kv.model_check import ModelCheck
    from apps.kv.verification import verify_file

    if bool(files) == everything:
        raise UsageError("give files, or --all for every one" if not files else "--all needs no files")
    among = places(named)
    unknown: list[str] = []
    if everything:
        paths = [path for place in among for path in place.files()]
    else:
        paths, unknown = find_files(files or (), among)
    with ExitStack() as opened:
        check = ModelCheck.open(model) if model is not None else None
        if check is not None:
            opened.callback(check.close)
        verdicts = []
        for path in paths:
            verdict = verify_file(path, check)
            verdicts.append(verdict)
            if not as_json:
                _print(verdict.lines())
    # Files of others may lie in a folder; one that was asked about by name was thought to be ours.
    wrong = ("damaged",) if everything else ("damaged", "foreign")
    bad = sum(verdict.state in wrong for verdict in verdicts)
    ok = not bad and not unknown
    if as_json:
        records = [verdict.record() for verdict in verdicts]
        _print_json({"ok": ok, "files": records, "unknown": unknown})
    elif len(verdicts) > 1 or (everything and not verdicts):
        say(f"{len(verdicts)} files checked, {bad} with problems", on=console(sys.stdout))
    for problem in unknown:
        say(f"ds4: {problem}", "ds4.error", on=console())
    return int(not ok)


@app.command()
def rm(
    files: DoomedArgument,
    named: DirectoryOption = None,
    force: ForceOption = False,
    as_json: JsonOption = False,
) -> int:
    """Remove files and their checksums."""
    from apps.kv.removal import remove_files

    among = places(named)
    paths = list(dict.fromkeys(find_file(file, among) for file in files))
    remove_files(paths, force=force)
    if as_json:
        _print_json({"removed": [str(path) for path in paths]})
    else:
        _print((f"removed {path}", "") for path in paths)
    return 0


@app.command()
def gc(
    named: DirectoryOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
    kv_disk_space_mb: DiskSpaceOption = DEFAULT_SPACE_MB,
    force: ForceOption = False,
    as_json: JsonOption = False,
) -> int:
    """Remove what dead writers left, damaged files set aside, stale checksums and what is over the budget."""
    from apps.kv.collection import collect, find_waste, waste_lines, waste_record
    from apps.kv.owner import held

    budget = (kv_disk_space_mb or DEFAULT_SPACE_MB) * MIB
    among = places(named)
    with held([] if dry_run else [place.folder.absolute() for place in among], force=force):
        waste = [entry for place in among for entry in find_waste(place, budget, time.time())]
        if not dry_run:
            collect(waste)
    if as_json:
        _print_json(waste_record(waste, dry_run=dry_run))
    else:
        _print(waste_lines(waste, dry_run=dry_run))
    return 0


@app.command("export-text")
def export_text(
    file: FileArgument,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="Where the text goes; else stdout.")
    ] = None,
    named: DirectoryOption = None,
    as_json: JsonOption = False,
) -> int:
    """Print the text that a file is found by."""
    from apps.kv.text_export import read_text, text_record, write_text

    if output is not None:
        check_writable(output)
    path = find_file(file, places(named))
    text = read_text(path)
    if as_json:
        record = json.dumps(text_record(path, text), ensure_ascii=False, indent=2)
        write_text(record.encode() + b"\n", output)
    else:
        write_text(text, output)
    return 0


def _print(lines: Iterable[tuple[str, str]]) -> None:
    out = console(sys.stdout)
    for line, style in lines:
        say(line, style, on=out)


def _print_json(record: dict[str, Any]) -> None:
    print(json.dumps(record, indent=2, ensure_ascii=False))


def _width() -> int:
    out = console(sys.stdout)
    return out.width if out.is_terminal else _PIPE_WIDTH
