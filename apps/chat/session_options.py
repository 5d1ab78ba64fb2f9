"""The options of `ds4 chat` about saved conversations. Knows no conversation and no file."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Final

import typer

from apps.chat.settings import NEWEST, SessionSettings
from apps.kv_folder import disk_dir, named_folder
from shared.errors import UsageError

_PANEL: Final = "Sessions"
_ID = re.compile(r"[0-9a-fA-F]{1,40}")

ResumeOption = Annotated[
    str | None,
    typer.Option(
        "--resume",
        metavar="[ID]",
        help="Go on with a saved conversation: the latest, or the one whose id starts so.",
        rich_help_panel=_PANEL,
    ),
]
# No variable: that of `ds4 serve` names a store, which makes room by deleting files.
DirectoryOption = Annotated[
    Path | None,
    typer.Option(
        "--kv-disk-dir",
        parser=disk_dir,
        metavar="DIR",
        show_default="in the user's data, one folder a model",
        help="Folder of saved conversations.",
        rich_help_panel=_PANEL,
    ),
]
NoAutosaveOption = Annotated[
    bool,
    typer.Option(
        "--no-kv-disk",
        envvar="DS4_NO_KV_DISK",
        help="Save no conversation and no state unasked; /save does.",
        rich_help_panel=_PANEL,
    ),
]


def session_settings(directory: Path | None, no_autosave: bool, resume: str | None) -> SessionSettings:
    """What the options ask for. Raises UsageError."""
    if resume is not None and resume != NEWEST and not _ID.fullmatch(resume):
        raise UsageError(
            f"--resume takes the first hex digits of a session's id, not {resume[:50]!r}: /list shows them"
        )
    return SessionSettings(
        named_folder(directory) if directory else None,
        autosave=not no_autosave,
        resume=resume.lower() if resume else None,
    )
