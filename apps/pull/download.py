"""One file from the hub to disk: space check, resumed transfer, checksum.

The transfer itself is huggingface_hub's; this module knows no target names and prints nothing but
through `say`.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from shared.errors import Ds4Error

_SHA256_LENGTH = 64
_HASH_CHUNK = 8 * 1024**2
# Left free on the disk after a download.
_SPARE_BYTES = 1024**3


class DownloadError(Ds4Error):
    """A download cannot start or did not end well."""


@dataclass(frozen=True, slots=True)
class HubFile:
    """What the hub says of a file: size in bytes, SHA-256 in hex where it publishes one."""

    name: str
    size: int
    sha256: str | None


@dataclass(frozen=True, slots=True)
class Hub:
    """Where files come from. `endpoint` None is the public hub; `token` None uses the saved login."""

    repository: str
    endpoint: str | None = None
    token: str | None = None
    revision: str = "main"

    def describe(self, name: str) -> HubFile:
        """Ask for size and checksum. Raises DownloadError in one line."""
        from huggingface_hub import get_hf_file_metadata, hf_hub_url

        url = hf_hub_url(self.repository, name, revision=self.revision, endpoint=self.endpoint)
        with _one_line_errors(name, self.repository):
            facts = get_hf_file_metadata(url, token=self.token, endpoint=self.endpoint)
        if facts.size is None:
            raise DownloadError(f"the hub does not say how large {name} is: try again later")
        etag = facts.etag or ""
        is_sha256 = len(etag) == _SHA256_LENGTH and all(digit in "0123456789abcdef" for digit in etag)
        return HubFile(name, facts.size, etag if is_sha256 else None)

    def fetch(self, name: str, folder: Path) -> Path:
        """Transfer a file into `folder`, going on where an earlier attempt stopped."""
        from huggingface_hub import hf_hub_download

        with _one_line_errors(name, self.repository):
            path = hf_hub_download(
                self.repository,
                name,
                revision=self.revision,
                local_dir=folder,
                token=self.token,
                endpoint=self.endpoint,
            )
        return folder / name if (folder / name).samefile(path) else Path(path)


@contextmanager
def _one_line_errors(name: str, repository: str) -> Iterator[None]:
    """Turn whatever the hub client raises into one line that says what to do."""
    from huggingface_hub import errors

    try:
        yield
    except errors.GatedRepoError as error:
        raise _failed(name, "the files need a login: pass --token or set HF_TOKEN") from error
    except errors.RepositoryNotFoundError as error:
        reason = f"no repository {repository}, or it needs a login: pass --token or set HF_TOKEN"
        raise _failed(name, reason) from error
    except errors.RemoteEntryNotFoundError as error:
        raise _failed(name, f"{repository} has no such file: see `ds4 pull --list`") from error
    except Exception as error:
        first = next(iter(str(error).strip().splitlines()), "") or type(error).__name__
        reason = f"{first} (run the same command again to go on where it stopped)"
        raise _failed(name, reason) from error


def _failed(name: str, reason: str) -> DownloadError:
    return DownloadError(f"cannot download {name}: {reason}")


def check_space(folder: Path, needed: int, *, free: Callable[[Path], int] | None = None) -> None:
    """Refuse when `folder`'s disk cannot take `needed` more bytes and keep a reserve."""
    available = shutil.disk_usage(folder).free if free is None else free(folder)
    if needed + _SPARE_BYTES > available:
        raise DownloadError(
            f"not enough disk space in {folder}: {needed / 1e9:.1f} GB to download, "
            f"{available / 1e9:.1f} GB free (1 GB is kept in reserve); set DS4_GGUF_DIR to another disk"
        )


def partial_bytes(folder: Path) -> int:
    """Bytes that earlier, interrupted transfers left in `folder`."""
    parts = (folder / ".cache" / "huggingface" / "download").rglob("*.incomplete")
    return sum(part.stat().st_size for part in parts)


def verify(path: Path, expected: HubFile, progress: Callable[[int], None] = lambda _: None) -> None:
    """Compare size and, where published, SHA-256. A file that fails is set aside as `NAME.bad`."""
    size = path.stat().st_size
    problem = "" if size == expected.size else f"it has {size} bytes, the hub says {expected.size}"
    if not problem and expected.sha256 is not None:
        digest = hashlib.sha256()
        with path.open("rb") as file:
            while chunk := file.read(_HASH_CHUNK):
                digest.update(chunk)
                progress(len(chunk))
        if digest.hexdigest() != expected.sha256:
            problem = f"its SHA-256 is {digest.hexdigest()}, the hub says {expected.sha256}"
    if problem:
        bad = path.with_name(path.name + ".bad")
        path.replace(bad)
        raise DownloadError(f"{path.name} arrived damaged: {problem}; moved to {bad.name}, pull it again")
