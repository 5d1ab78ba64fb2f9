"""The JSON form of tokens and logits in the dump files. Spec: apps §1.5.

Byte-exact layout, so that dumps of two engines can be compared as text.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from shared.text.tokenizer import Tokenizer

_LOGITS_PER_LINE = 8


def number(value: float) -> str:
    """Nine significant digits, enough for any float32; null when not finite."""
    value = float(value)
    return f"{value:.9g}" if math.isfinite(value) else "null"


def piece(data: bytes) -> str:
    """Bytes as a JSON string, each byte above 0x7F escaped by itself: a token need not be UTF-8."""
    return json.dumps(data.decode("latin-1"))


def token(tokenizer: Tokenizer, token_id: int) -> str:
    """`{"id":..,"text":..,"bytes":[..]}` of one token."""
    data = tokenizer.token_bytes(token_id)
    return f'{{"id":{token_id},"text":{piece(data)},"bytes":[{",".join(map(str, data))}]}}'


def logits(values: npt.NDArray[np.float32]) -> Iterable[str]:
    """The lines of a logits array, without its brackets."""
    for start in range(0, len(values), _LOGITS_PER_LINE):
        row = ",".join(map(number, values[start : start + _LOGITS_PER_LINE].tolist()))
        yield row if start + _LOGITS_PER_LINE >= len(values) else f"{row},"


def string(value: str) -> str:
    """A JSON string of ordinary text, such as a file name."""
    return json.dumps(value, ensure_ascii=False)
