"""What a step found, in lines for people.

Must not know: how it was found.
"""

from __future__ import annotations

from typing import Any

_MOST_KERNELS = 8


def lines(name: str, found: dict[str, Any]) -> list[str]:
    """The lines of one step, indented."""
    told = [f"{name}: {found['state']} ({found['seconds']} s)"]
    if name == "contracts":
        told += _contracts(found)
    elif name.startswith("model-"):
        told += _model(found)
    else:
        values = {**found, **found.get("load", {})}
        told += [
            f"{key}: {value}" for key, value in values.items() if key not in ("state", "seconds", "load")
        ]
    return [f"  {line}" if number else line for number, line in enumerate(told)]


def failures(found: dict[str, Any]) -> int:
    """How many of the things in a step failed."""
    inner = sum(failures(value) for value in found.values() if isinstance(value, dict))
    return inner + bool(found.get("failed")) + len(found.get("files that failed", []))


def _contracts(found: dict[str, Any]) -> list[str]:
    told = [f"{found.get('passed', 0)} tests passed"]
    for file, result in found.get("files", {}).items():
        for test in result.get("failed", {}):
            told.append(f"FAILED {file} {test}")
        if not result.get("passed"):
            late = result.get("cut off") or result.get("not begun")
            told.append(f"NOT RUN {file}: {'no time was left' if late else 'none of its tests passed'}")
    return told


def _model(found: dict[str, Any]) -> list[str]:
    told = [f"{key}: {value}" for key, value in found.get("model", {}).items()]
    for what in ("prefill", "decode"):
        for length, values in found.get(what, {}).items():
            told.append(f"{what} {length}: {_one_line(values)}")
    for values in found.get("repeated", {}).values():
        told.append(f"the same prompt again and again: {_one_line(values)}")
    for kind in ("kernels of a decode step", "kernels of a prefill step"):
        for length, times in found.get(kind, {}).items():
            told.append(f"{kind}, {length}:")
            told += [f"  {kernel}: {_one_line(of)}" for kernel, of in list(times.items())[:_MOST_KERNELS]
                     if isinstance(of, dict)] or [f"  {times}"]  # fmt: skip
    return told


def _one_line(values: dict[str, Any]) -> str:
    if "failed" in values:
        return f"FAILED {values['failed'].strip().splitlines()[-1]}"
    return ", ".join(f"{key} {value}" for key, value in values.items())
