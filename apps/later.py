"""Options of the original engine whose feature this version does not have: refused with one line.

An option leaves this table when its feature arrives. Knows no command.
"""

from __future__ import annotations

_STREAMING = "experts are not streamed from disk in this version: the whole model must fit in memory"
_IMAGES = "images are not part of this version"
_DRAFTS = "multi-token drafts are not part of this version"
_IMATRIX = "importances are collected by `ds4 imatrix --dataset FILE --out FILE`"
_DISTRIBUTED = "distributed inference is not part of this version"
_SELF_TESTS = "backends are compared by the test suite, not by a flag"

REFUSED: dict[str, str] = {
    "--server": "use `ds4 serve`",
    "--ssd-streaming": _STREAMING,
    "--ssd-streaming-cache-experts": _STREAMING,
    "--vision": _IMAGES,
    "--mtp": _DRAFTS,
    "--mtp-model": _DRAFTS,
    "--dspark": _DRAFTS,
    "--mtp-draft": _DRAFTS,
    "--mtp-margin": _DRAFTS,
    "--imatrix-dataset": _IMATRIX,
    "--imatrix-out": _IMATRIX,
    "--imatrix-max-prompts": _IMATRIX,
    "--imatrix-max-tokens": _IMATRIX,
    "--role": _DISTRIBUTED,
    "--layers": _DISTRIBUTED,
    "--listen": _DISTRIBUTED,
    "--coordinator": _DISTRIBUTED,
    "--dist-prefill-chunk": _DISTRIBUTED,
    "--dist-prefill-window": _DISTRIBUTED,
    "--dist-activation-bits": _DISTRIBUTED,
    "--dist-replay-check": _DISTRIBUTED,
    "--debug": _DISTRIBUTED,
    "--head-test": _SELF_TESTS,
    "--first-token-test": _SELF_TESTS,
    "--metal-graph-test": _SELF_TESTS,
    "--metal-graph-full-test": _SELF_TESTS,
    "--metal-graph-prompt-test": _SELF_TESTS,
}
