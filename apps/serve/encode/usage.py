"""Token counts and rates of one answer, in the forms that more than one dialect sends. Spec: chat §5.5."""

from __future__ import annotations

from typing import Any

from apps.serve.jobs import Finished, Usage


def usage_body(usage: Usage) -> dict[str, Any]:
    """Token counts as chat and completions report them: all that was not reused counts as written."""
    return {
        "prompt_tokens": usage.prompt,
        "completion_tokens": usage.completion,
        "total_tokens": usage.prompt + usage.completion,
        "prompt_tokens_details": {
            "cached_tokens": usage.cached,
            "cache_write_tokens": usage.prompt - usage.cached,
        },
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
    }


def timings_body(finished: Finished) -> dict[str, Any]:
    """Rates, the same in every dialect: `prompt_n` tokens were computed, `cache_n` reused, `predicted_n`
    sampled."""
    usage, timings = finished.usage, finished.timings
    computed = usage.prompt - usage.cached
    return {
        "cache_n": usage.cached,
        "prompt_n": computed,
        "prompt_ms": _milliseconds(timings.prefill),
        "prompt_per_second": _rate(computed, timings.prefill),
        "predicted_n": usage.completion,
        "predicted_ms": _milliseconds(timings.decode),
        "predicted_per_second": _rate(usage.completion, timings.decode),
    }


def _milliseconds(seconds: float) -> float:
    return round(seconds * 1000, 3)


def _rate(tokens: int, seconds: float) -> float:
    return round(tokens / seconds, 3) if seconds > 0 else 0.0
