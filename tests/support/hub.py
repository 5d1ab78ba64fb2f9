"""A stand-in for the model hub on loopback: metadata by HEAD, content by GET with ranges."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class StandInHub:
    """Files by name. `cut_after` breaks the next transfer after so many bytes; `requests` is a log."""

    files: dict[str, bytes]
    url: str = ""
    cut_after: int | None = None
    wrong_checksum: bool = False
    requests: list[tuple[str, str, str | None]] = field(default_factory=list)

    def checksum(self, name: str) -> str:
        content = self.files[name] + (b"?" if self.wrong_checksum else b"")
        return hashlib.sha256(content).hexdigest()


@contextmanager
def stand_in_hub(files: dict[str, bytes]) -> Iterator[StandInHub]:
    hub = StandInHub(files)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:
            pass

        def do_HEAD(self) -> None:
            self._answer(body=False)

        def do_GET(self) -> None:
            self._answer(body=True)

        def _answer(self, *, body: bool) -> None:
            name = self.path.partition("?")[0].rsplit("/", 1)[-1]
            wanted = self.headers.get("Range")
            hub.requests.append((self.command, name, wanted))
            if name not in hub.files or "/resolve/" not in self.path:
                self.send_response(404)
                self.send_header("X-Error-Code", "EntryNotFound")
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            content = hub.files[name]
            start = int(wanted.removeprefix("bytes=").split("-")[0]) if wanted else 0
            self.send_response(206 if start else 200)
            self.send_header("Content-Length", str(len(content) - start))
            if start:
                self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
            self.send_header("ETag", f'"{hub.checksum(name)}"')
            self.send_header("X-Repo-Commit", "0" * 40)
            self.send_header("Accept-Ranges", "bytes")
            self.end_headers()
            if not body:
                return
            if hub.cut_after is not None:
                self.wfile.write(content[start : start + hub.cut_after])
                hub.cut_after = None
                self.close_connection = True
                return
            self.wfile.write(content[start:])

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        hub.url = f"http://127.0.0.1:{server.server_address[1]}"
        yield hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
