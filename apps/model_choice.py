"""Which model file to use when the user named none. Opens nothing."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from apps.pull.targets import RECOMMENDED
from shared.errors import ModelFileError

DEFAULT_MODEL = Path("ds4flash.gguf")
EMBEDDED_MODEL = Path(__file__).parent / "models" / "embedded.gguf"


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """A model file, and a line for the user when the choice needs one."""

    path: Path
    note: str | None = None


def choose_model(
    named: Path | None, *, default: Path = DEFAULT_MODEL, embedded: Path = EMBEDDED_MODEL
) -> ModelChoice:
    """`named` if given, else ./ds4flash.gguf, else the model that comes with the program.

    Raises ModelFileError when the chosen path is not a readable file.
    """
    if named is not None:
        return ModelChoice(_existing(named))
    # A dangling symbolic link is an interrupted download: falling back silently would hide it.
    if default.exists() or default.is_symlink():
        return ModelChoice(_existing(default))
    if not embedded.exists():
        raise ModelFileError(f"no model: give -m FILE, or run `ds4 pull {RECOMMENDED}` to get ./{default}")
    note = (
        f"no ./{default} here: using the small demonstration model that comes with ds4, which knows little "
        f"more than how to use it; `ds4 pull {RECOMMENDED}` gets the real one"
    )
    return ModelChoice(embedded, note)


def _existing(path: Path) -> Path:
    if path.is_dir():
        raise ModelFileError(f"{path} is a folder: give the GGUF file in it")
    if not path.exists():
        target = f" (a link to {path.readlink()})" if path.is_symlink() else ""
        raise ModelFileError(f"no model file {path}{target}: give -m FILE, or run `ds4 pull {RECOMMENDED}`")
    return path
