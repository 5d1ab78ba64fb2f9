"""Text to bytes and bytes to text, also in pieces. Knows nothing of tokens."""

from __future__ import annotations

import codecs


def to_bytes(text: str) -> bytes:
    """UTF-8 of `text`; surrogate pairs are joined, a lone surrogate becomes U+FFFD."""
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        joined = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
        return "".join("\ufffd" if 0xD800 <= ord(c) <= 0xDFFF else c for c in joined).encode("utf-8")


class Utf8Stream:
    """Bytes in, text out, holding back only an incomplete sequence at the end.

    Whatever the cuts, the joined text equals `bytes.decode("utf-8", "replace")` of the whole: U+FFFD is
    never sent for a sequence that later bytes may still complete.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, data: bytes) -> str:
        """The text that is certain after `data`."""
        return self._decoder.decode(data)

    def flush(self) -> str:
        """The rest, with U+FFFD for a dangling tail. The stream may be used again afterwards."""
        text = self._decoder.decode(b"", final=True)
        self._decoder.reset()
        return text
