"""Field types and the fault report that the request models of all dialects share."""

from __future__ import annotations

import json
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError

from shared.errors import RequestError

_Model = TypeVar("_Model", bound=BaseModel)


class LenientModel(BaseModel):
    """Unknown fields are skipped; known ones must have their type, so that "5" is no number."""

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)


class StreamOptions(LenientModel):
    include_usage: bool | None = None


def _strings(stop: Any) -> Any:
    """One string or an array; empty ones and array items that are no strings are skipped."""
    if stop is None:
        return ()
    if isinstance(stop, str):
        return (stop,) if stop else ()
    if isinstance(stop, list):
        return tuple(item for item in stop if isinstance(item, str) and item)
    raise ValueError("must be a string or an array of strings")


def _whole(number: Any) -> Any:
    """JSON knows one kind of number: 5.0 is 5."""
    return int(number) if isinstance(number, float) and number.is_integer() else number


WholeNumber = Annotated[int, BeforeValidator(_whole)]
StopStrings = Annotated[tuple[str, ...], BeforeValidator(_strings)]


def json_text(value: Any) -> str:
    """`value` as compact JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def validate(model: type[_Model], body: dict[str, Any]) -> _Model:
    """`body` as a request model. Raises RequestError naming the first field that is wrong."""
    try:
        return model.model_validate(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"] if not _is_branch(part)) or "body"
        message = first["msg"].removeprefix("Value error, ")
        param = str(first["loc"][0]) if first["loc"] else None
        raise RequestError(f"{where}: {message[:1].lower()}{message[1:]}", param=param) from None


def _is_branch(part: int | str) -> bool:
    """Union branches that pydantic adds to a location and that no client knows."""
    return isinstance(part, str) and (part == "str" or "[" in part)
