"""Other spellings of options: published articles and the original engine use them; ours are canonical.

Rewritten before parsing, and in no help text. Knows no command.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from apps.later import REFUSED
from shared.errors import UsageError

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
# Options whose value may be left out, and the value that they then have.
OPTIONAL_VALUES: dict[str, str] = {"--resume": "newest"}


def rewrite(arguments: Sequence[str], command: Any) -> list[str]:
    """`arguments` with every alias replaced by its canonical words, and a left-out value put where one may be
    left out. `command` is a click command or group.

    An alias counts where the command has its canonical option and no option of the alias's own name. The
    value of an option is never touched (`-p --metal` asks about the word), nor is anything after `--`.
    Raises UsageError for an option that the command lacks because its feature is not here.
    """
    parameters = list(_parameters(command))
    known = {name for parameter in parameters for name in parameter.opts}
    with_value = {
        name for parameter in parameters if not getattr(parameter, "is_flag", True) for name in parameter.opts
    }
    rewritten: list[str] = []
    words = list(arguments)
    while words:
        word = words.pop(0)
        if word == "--":
            return [*rewritten, word, *words]
        name, equals, value = word.partition("=")
        canonical = ALIASES.get(name, (name,))
        if name in known or canonical[0] not in known | REFUSED.keys() or (equals and len(canonical) > 1):
            canonical = (name,)
        if canonical[0] in REFUSED and canonical[0] not in known:
            raise UsageError(f"{name}: {REFUSED[canonical[0]]}")
        rewritten += [canonical[0] + equals + value, *canonical[1:]]
        if not equals and len(canonical) == 1 and canonical[0] in with_value:
            if canonical[0] in OPTIONAL_VALUES and (not words or words[0].startswith("-")):
                rewritten.append(OPTIONAL_VALUES[canonical[0]])
            else:
                rewritten += words[:1]
                del words[:1]
    return rewritten


def _parameters(command: Any) -> Iterator[Any]:
    yield from command.params
    for nested in getattr(command, "commands", {}).values():
        yield from _parameters(nested)
