"""One grammar along one text: which tokens may come next, given those that came. Knows no turn."""

from __future__ import annotations

from copy import copy

import numpy as np

from shared.constrain.grammar import Grammar
from shared.constrain.vocabulary import Mask, MaskVocabulary
from shared.errors import EngineFault


class Matcher:
    """At the beginning of the text. Raises EngineFault, then and later, where the grammar leads nowhere or
    outgrows its limits: of a client's grammar take the one from `opening`."""

    def __init__(self, vocabulary: MaskVocabulary, grammar: Grammar) -> None:
        from llguidance import LLMatcher

        self._size = vocabulary.size
        self._matcher = LLMatcher(vocabulary.trie, grammar.text, log_level=0)
        self._check()

    def copy(self) -> Matcher:
        """One at the same place that goes its own way; the grammar is not compiled again."""
        twin = copy(self)
        twin._matcher = self._matcher.deep_copy()
        return twin

    @property
    def complete(self) -> bool:
        """The text is whole and nothing can follow."""
        return self._matcher.is_stopped()

    def allowed(self) -> Mask:
        """The tokens that may come next; at least one. The end token is one of them where the text may end,
        no other control token ever is."""
        bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
        self._check()
        mask = np.unpackbits(bits, bitorder="little")[: self._size].view(np.bool_)
        if not mask.any():
            raise EngineFault("the answer cannot go on in the form that was asked for")
        return mask

    def take(self, token: int) -> None:
        """`token`, one of the allowed ones, came next."""
        self._matcher.consume_token(token)
        self._check()

    def _check(self) -> None:
        if self._matcher.is_error():
            reason = self._matcher.get_error().partition("\n")[0]
            raise EngineFault(f"the answer cannot be held to the form that was asked for: {reason[:200]}")


def opening(vocabulary: MaskVocabulary, grammar: Grammar) -> Matcher | None:
    """The matcher of a grammar, which may take long to compile; None if no text of it can even begin."""
    try:
        matcher = Matcher(vocabulary, grammar)
        matcher.allowed()
    except EngineFault:
        return None
    return matcher
