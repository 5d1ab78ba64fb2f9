"""Other spellings of options: published articles and the original engine use them; ours are canonical.

Aliases are rewritten before parsing and appear in no help text. An alias counts only on a command that
has its canonical option. Knows no command.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

# alias -> canonical words. One canonical word keeps the alias's own value.
ALIASES: dict[str, tuple[str, ...]] = {
    "--temperature": ("--temp",),
    "--kv-cache-dir": ("--kv-disk-dir",),
    "--kv-cache-space-mb": ("--kv-disk-space-mb",),
    "--mtp-draft-tokens": ("--mtp-draft",),
    "--power-percent": ("--power",),
    "--directional-steering-file": ("--dir-steering-file",),
    "--directional-steering-ffn": ("--dir-steering-ffn",),
    "--directional-steering-attn": ("--dir-steering-attn",),
    "--batched-session": ("--sessions",),
    "--metal": ("--backend", "mlx"),
    "--cuda": ("--backend", "cuda"),
    "--cpu": ("--backend", "reference"),
}


def rewrite(arguments: Sequence[str], command: Any) -> list[str]:
    """`arguments` with every alias replaced by its canonical words. The value of an option is never
    touched (`-p --metal` asks about the word), nor is anything after `--`. `command` is a click command
    or group."""
    parameters = list(_parameters(command))
    known = {name for parameter in parameters for name in parameter.opts}
    with_value = {
        name for parameter in parameters if not getattr(parameter, "is_flag", True) for name in parameter.opts
    }
    rewritten: list[str] = []
    words = iter(arguments)
    for word in words:
        if word == "--":
            return [*rewritten, word, *words]
        name, equals, value = word.partition("=")
        canonical = ALIASES.get(name, ())
        if canonical and canonical[0] in known and not (equals and len(canonical) > 1):
            rewritten += [canonical[0] + equals + value, *canonical[1:]]
            expects_value = len(canonical) == 1 and not equals and canonical[0] in with_value
        else:
            rewritten.append(word)
            expects_value = word in with_value
        if expects_value:
            rewritten += [value for value in [next(words, None)] if value is not None]
    return rewritten


def _parameters(command: Any) -> Iterator[Any]:
    yield from command.params
    for nested in getattr(command, "commands", {}).values():
        yield from _parameters(nested)
