"""The script file: its fields, their limits, and what is refused. Knows nothing of how it is played."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Discriminator, Field, Tag, model_validator
from pydantic_core import PydanticCustomError

from shared.scripted.vocabulary import tokens_of

PIECE_KINDS = ("text", "hex", "plain", "tokens", "logits")
_LONGEST_TEXT = 1_000_000


def _refuse(reason: str) -> PydanticCustomError:
    # A reason may hold the script's own braces: it is a value of the template, never the template.
    return PydanticCustomError("script", "{reason}", {"reason": reason})


def _whole_bytes(digits: str) -> str:
    if re.fullmatch(r"([0-9A-Fa-f]{2})+", digits) is None:
        raise _refuse("hex must be pairs of hexadecimal digits")
    return digits


Text = Annotated[str, Field(min_length=1, max_length=_LONGEST_TEXT)]
Hex = Annotated[str, Field(max_length=2 * _LONGEST_TEXT), AfterValidator(_whole_bytes)]
Seconds = Annotated[float, Field(ge=0, le=86_400, allow_inf_nan=False)]
Logit = Annotated[float, Field(ge=-1000, le=1000, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0, le=1_000_000_000)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class _ObjectPiece(_Part):
    delay_s: Seconds | None = None  # instead of the turn's piece_delay_s


class TextPiece(_ObjectPiece):
    """Text, and what to say instead under a token mask that forbids it."""

    text: Text
    otherwise: list[Text] = Field(default=[], alias="else", max_length=1000)


class HexPiece(_ObjectPiece):
    """Raw bytes."""

    hex: Hex


class PlainPiece(_ObjectPiece):
    """Text as ordinary tokens even where it spells a control token."""

    plain: Text


class TokensPiece(_ObjectPiece):
    """One step of several tokens."""

    tokens: list[Text] = Field(min_length=1, max_length=1000)


class LogitsPiece(_ObjectPiece):
    """A distribution: the sampler chooses."""

    logits: dict[Text, Logit] = Field(min_length=1, max_length=1000)

    @model_validator(mode="after")
    def _first_tokens_differ(self) -> Self:
        seen: dict[int, str] = {}
        for text in self.logits:
            other = seen.setdefault(tokens_of(text)[0], text)
            if other != text:
                raise _refuse(f"{other!r} and {text!r} begin with the same token: one logit cannot be both")
        return self


def _piece_kind(piece: Any) -> str | None:
    """A tag in angle brackets, so that it cannot be taken for a key in an error's path."""
    if isinstance(piece, str):
        return "<string>"
    if isinstance(piece, dict):
        return next((f"<{kind}>" for kind in PIECE_KINDS if kind in piece), None)
    return None


Piece = Annotated[
    Annotated[Text, Tag("<string>")]
    | Annotated[TextPiece, Tag("<text>")]
    | Annotated[HexPiece, Tag("<hex>")]
    | Annotated[PlainPiece, Tag("<plain>")]
    | Annotated[TokensPiece, Tag("<tokens>")]
    | Annotated[LogitsPiece, Tag("<logits>")],
    Discriminator(
        _piece_kind,
        custom_error_type="piece",
        custom_error_message="a piece is a text, or an object with one of " + ", ".join(PIECE_KINDS),
    ),
]


class Failure(_Part):
    """Strikes instead of the unit of work number `after`, counted from 0: a decode piece, a prefill step,
    a save, a load, or a sync that follows a load."""

    at: Literal["prefill", "decode", "save", "load", "sync-after-load"]
    after: Count = 0


class Turn(_Part):
    """What the model says in one turn, and how slowly."""

    pieces: list[Piece] = Field(max_length=1_000_000)
    match: Text | None = None
    piece_delay_s: Seconds = 0.0
    prefill_s_per_1000_tokens: Seconds = 0.0
    prefill_block_s: Seconds = 0.0
    prefill_spin_s: Seconds = 0.0
    fail: Failure | None = None
    eos: bool = True

    @model_validator(mode="after")
    def _failure_can_strike(self) -> Self:
        fail = self.fail
        if fail is not None and fail.at == "decode" and self.eos and fail.after > len(self.pieces):
            raise _refuse(
                f"the turn fails instead of piece {fail.after} but ends after {len(self.pieces)} pieces"
            )
        return self


class EngineNames(_Part):
    """What the engine says it is."""

    name: Text = "scripted"
    model_id: Literal[0, 1] = 0
    quant_bits: Literal[2, 4] = 2


class SnapshotCost(_Part):
    """Sizes and slowness of saved sessions; a payload is never smaller than what it must hold."""

    fixed_bytes: Annotated[int, Field(ge=0, le=1 << 32)] = 0
    bytes_per_token: Annotated[int, Field(ge=0, le=1 << 24)] = 0
    save_s_per_mb: Seconds = 0.0


class Script(_Part):
    """A whole script."""

    turns: list[Turn] = Field(max_length=100_000)
    after: Literal["repeat-last", "cycle", "eos"] = "repeat-last"
    engine: EngineNames = EngineNames()
    prefill_chunk: Annotated[int, Field(ge=1, le=1 << 20)] = 2048
    snapshot: SnapshotCost = SnapshotCost()
    journal: Text | None = None

    @model_validator(mode="after")
    def _something_to_say(self) -> Self:
        if not self.turns and self.after != "eos":
            raise _refuse(f'"after": "{self.after}" needs at least one turn')
        return self
