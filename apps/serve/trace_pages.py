"""One file for the entries of several turns at once: each in one piece, in the order in which they began.

Owns what is held back. Knows no turn.
"""

from __future__ import annotations

from collections import deque

from apps.trace import TraceFile


class Page:
    """Text that belongs together; `close` it once it is whole."""

    def __init__(self, pages: Pages) -> None:
        self._pages = pages
        self.held: list[str] = []
        self.closed = False

    def write(self, text: str) -> None:
        """Written at once if nothing that began earlier is still open, else later."""
        self._pages.write(self, text)

    def close(self) -> None:
        """Nothing more comes."""
        self.closed = True
        self._pages.turn_over()


class Pages:
    """The open pages of `file`. The first goes straight into it, the others wait in memory."""

    def __init__(self, file: TraceFile) -> None:
        self._file = file
        self._open: deque[Page] = deque()

    def open(self) -> Page:
        """A new page, behind all others."""
        page = Page(self)
        self._open.append(page)
        return page

    def write(self, page: Page, text: str) -> None:
        if page is self._open[0]:
            self._file.write(text)
        elif self._file.open:
            page.held.append(text)

    def turn_over(self) -> None:
        """Write what waits, as far as it can be known to be in order."""
        while self._open and self._open[0].closed:
            self._open.popleft()
            if self._open:
                self._file.write("".join(self._open[0].held))
                self._open[0].held.clear()
