"""The chat that a terminal holds with the model, as the tokens themselves.

What was sampled stays as it was sampled, so that the live session always continues it. Every body is
encoded as plain text: nothing typed or read from a file can become a control token. Knows nothing of
sessions and of terminals.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from shared.text import marks
from shared.text.effort import Effort, effort_text
from shared.text.prompt_texts import DEFAULT_SYSTEM
from shared.text.tokenizer import Tokenizer

_TOOL_PREFIX: Final = "Tool: "


def is_rendered(prompt: str) -> bool:
    """Whether a prompt is an already rendered transcript: it starts with the begin mark."""
    return prompt.startswith(marks.BOS)


class Transcript:
    """A chat as a head (begin mark, effort text, system text) and the turns behind it."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        effort: Effort,
        profile: str,
        system: str = DEFAULT_SYSTEM,
    ) -> None:
        """An empty chat; an empty `system` leaves the system text out."""
        self._tokenizer = tokenizer
        self._profile = profile
        self._effort: Effort = effort
        self._system: list[int] | None = tokenizer.encode_text(system)
        self._head = self._build_head(self._system)
        self._turns: list[int] = []
        self._user_marks: list[int] = []

    @classmethod
    def from_tokens(
        cls, tokenizer: Tokenizer, tokens: Sequence[int], *, effort: Effort, profile: str
    ) -> Transcript:
        """A transcript that exists as tokens: what stands before the first user mark is kept as it is."""
        transcript = cls(tokenizer, effort=effort, profile=profile, system="")
        user = tokenizer.specials.user
        positions = [index for index, token in enumerate(tokens) if token == user]
        start = positions[0] if positions else len(tokens)
        transcript._system = None
        transcript._head = list(tokens[:start])
        transcript._turns = list(tokens[start:])
        transcript._user_marks = [position - start for position in positions]
        return transcript

    @classmethod
    def from_rendered(cls, tokenizer: Tokenizer, text: str, *, effort: Effort, profile: str) -> Transcript:
        """An already rendered transcript (see `is_rendered`): control strings in it are control tokens."""
        tokens = tokenizer.encode_rendered(text)
        return cls.from_tokens(tokenizer, tokens, effort=effort, profile=profile)

    @property
    def tokens(self) -> list[int]:
        """The whole transcript (a new list)."""
        return self._head + self._turns

    def __len__(self) -> int:
        return len(self._head) + len(self._turns)

    @property
    def head(self) -> list[int]:
        """What stands before the first user message (a new list)."""
        return list(self._head)

    @property
    def user_messages(self) -> int:
        """How many there are."""
        return len(self._user_marks)

    @property
    def effort(self) -> Effort:
        """The level of the next answer."""
        return self._effort

    @property
    def thinking(self) -> bool:
        """Whether what the model writes behind these tokens is thinking."""
        specials = self._tokenizer.specials
        ends = (specials.think_end, specials.assistant, specials.user, specials.eos)
        last = next((t for t in reversed(self._turns) if t == specials.think or t in ends), None)
        return last == specials.think

    def set_effort(self, effort: Effort) -> None:
        """Changes the level from the next answer on. The turns stay; only the effort text is exchanged, so
        the tokens change only if the text does. A rendered transcript keeps its own head."""
        self._effort = effort
        if self._system is not None:
            self._head = self._build_head(self._system)

    def add_user(self, text: str) -> None:
        """A user message; `rollback` comes back to before it."""
        self._user_marks.append(len(self._turns))
        self._turns.append(self._tokenizer.specials.user)
        self._turns += self._tokenizer.encode_text(text)

    def add_tool(self, text: str) -> None:
        """The output of a tool, as a user-like message."""
        self.add_user(_TOOL_PREFIX + text)

    def add_assistant(self, text: str) -> None:
        """A whole answer given as text: an answer that starts with neither think mark did not think."""
        specials = self._tokenizer.specials
        self._turns.append(specials.assistant)
        if text.startswith(marks.THINK):
            reasoning, closed, text = text.removeprefix(marks.THINK).partition(marks.THINK_END)
            self._turns += [specials.think, *self._tokenizer.encode_text(reasoning)]
            if closed:
                self._turns.append(specials.think_end)
        else:
            self._turns.append(specials.think_end)
            text = text.removeprefix(marks.THINK_END)
        self._turns += self._tokenizer.encode_text(text)
        self.close()

    def begin_answer(self) -> None:
        """The marks behind which the model answers."""
        specials = self._tokenizer.specials
        self._turns += [specials.assistant, specials.think_end if self._effort == "none" else specials.think]

    def add_answer_tokens(self, tokens: Sequence[int]) -> None:
        """What the model sampled."""
        self._turns += tokens

    def close(self) -> None:
        """Ends the answer, also a partial one."""
        if self._turns[-1:] != [self._tokenizer.specials.eos]:
            self._turns.append(self._tokenizer.specials.eos)

    def close_open_answer(self) -> None:
        """Ends the answer if the transcript breaks off in one."""
        specials = self._tokenizer.specials
        ends = (specials.user, specials.assistant, specials.eos)
        if next((t for t in reversed(self._turns) if t in ends), None) == specials.assistant:
            self.close()

    def rollback(self) -> None:
        """Back to before the last user message; without one nothing changes."""
        if self._user_marks:
            del self._turns[self._user_marks.pop() :]

    def _build_head(self, system: list[int]) -> list[int]:
        text = self._tokenizer.encode_text(effort_text(self._profile, self._effort))
        return [self._tokenizer.specials.bos, *text, *system]
