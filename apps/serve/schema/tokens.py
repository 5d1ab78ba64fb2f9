"""The bodies of `POST /v1/tokenize` and `/v1/detokenize`."""

from __future__ import annotations

from apps.serve.schema.fields import LenientModel


class TokenizeRequest(LenientModel):
    """A plain text, under either name. `parse_special`: control strings in it count as control tokens."""

    content: str | None = None
    prompt: str | None = None
    parse_special: bool | None = None

    @property
    def text(self) -> str | None:
        """The text, if there is one."""
        return self.prompt if self.content is None else self.content


class DetokenizeRequest(LenientModel):
    tokens: list[int]
