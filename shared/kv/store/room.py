"""Room in the directory: which files are in the store's hands, and which go for a new one. Spec: kv §6.

Owns the question to the ranking. Must not know: threads, how a file is removed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from shared.kv.files.cache_file import CacheFile
from shared.kv.files.header import Extension, Header, Reason
from shared.kv.store.eviction import Candidate, Victims, choose_victims, is_shared_anchor
from shared.kv.store.lineage import Lineage
from shared.kv.store.policy import StoreSettings
from shared.kv.store.prefix_hash import prefix_names


@dataclass(frozen=True, slots=True)
class Incoming:
    """A state about to be written: its key text, and the file that it makes."""

    text: bytes
    file: CacheFile


class Room:
    """Chooses what goes. Any thread, as long as `files` does not change under it."""

    def __init__(self, settings: StoreSettings, lineage: Lineage) -> None:
        self._settings = settings
        self._lineage = lineage

    def plan(
        self,
        files: Collection[CacheFile],
        incoming: Incoming | None,
        now: float,
        protected: Collection[str] = (),
    ) -> Victims:
        """What has to go so that `incoming` fits beside the rest of `files`; None: so that they fit alone."""
        budget = self._settings.budget_bytes
        extra = 0 if incoming is None else incoming.file.size
        if budget is None or sum(file.size for file in files) + extra <= budget:
            return Victims()  # without a closer look at each: stores have many files
        new = None if incoming is None else incoming.file.name
        present = [file for file in files if file.name != new and not is_saved_session(file.header)]
        if sum(file.size for file in present) + extra <= budget:
            return Victims()
        branches = self._lineage.branches(present)
        superseded = set() if incoming is None else self._superseded(present, incoming)
        candidates = [
            _candidate(
                file,
                superseded=file.name in superseded,
                shared_anchor=is_shared_anchor(file.header, branches.get(file.name, 0), now),
            )
            for file in present
        ]
        return choose_victims(
            candidates,
            budget,
            extra,
            now,
            protected=protected,
            incoming=None if incoming is None else _candidate(incoming.file),
        )

    def _superseded(self, files: Iterable[CacheFile], incoming: Incoming) -> set[str]:
        """The files on the way to `incoming` that it makes needless: wherever they load, it does too."""
        header = incoming.file.header
        replaced = {
            file.name: file
            for file in files
            if file.header.reason is Reason.CONTINUED
            and 0 < file.text_bytes < len(incoming.text)
            and file.header.model_id == header.model_id
            and (file.header.quant_bits == header.quant_bits or not self._settings.reject_other_quant)
            and header.context <= file.header.context
        }
        lengths = sorted({file.text_bytes for file in replaced.values()})
        return {
            name
            for length, name in prefix_names(incoming.text, lengths)
            if name in replaced and replaced[name].text_bytes == length
        }


def is_saved_session(header: Header) -> bool:
    """Whether a user saved this under a name: it is no cache, so it neither counts nor goes."""
    return header.reason is Reason.AGENT_SESSION or bool(header.extensions & Extension.TITLE)


def _candidate(file: CacheFile, *, superseded: bool = False, shared_anchor: bool = False) -> Candidate:
    return Candidate(file.name, file.header, file.size, superseded, shared_anchor)
