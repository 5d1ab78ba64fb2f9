"""How large a context a run needs. Spec: apps §3.3."""

from __future__ import annotations

from collections.abc import Sequence

from shared.errors import UsageError
from shared.questions.question import Question
from shared.questions.run import question_tokens
from shared.text.effort import MAX_EFFORT_CONTEXT, Effort
from shared.text.tokenizer import Tokenizer

LARGEST_CONTEXT = 1_000_000
_PROFILES = ("preview", "official")


def automatic_context(
    tokenizer: Tokenizer, questions: Sequence[Question], effort: Effort, tokens: int
) -> int:
    """The context in which the longest question can be answered with `tokens` tokens, by either generation of
    effort texts. Raises UsageError where it is more than LARGEST_CONTEXT."""
    longest = max(
        len(question_tokens(tokenizer, question, effort, profile))
        for question in questions
        for profile in _PROFILES
    )
    needed = max(longest + tokens + 1, MAX_EFFORT_CONTEXT if effort == "max" else 0)
    if needed > LARGEST_CONTEXT:
        raise UsageError(
            f"the longest question has {longest} tokens: with --tokens {tokens} that needs a context of "
            f"{needed}, more than {LARGEST_CONTEXT}"
        )
    return needed
