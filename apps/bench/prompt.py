"""The tokens that a sweep runs over: raw text, one chat message, or exact ids."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from apps.prompt import Prompt, read_prompt
from shared.errors import UsageError
from shared.session import Engine


@dataclass(frozen=True, slots=True)
class PromptSource:
    """Where the tokens come from: a file, and how it is read."""

    path: Path
    kind: Literal["text", "chat", "tokens"]

    @classmethod
    def choose(cls, text: Path | None, chat: Path | None, tokens: Path | None) -> PromptSource:
        """The one source that was given. Raises UsageError for none or several."""
        kinds: tuple[tuple[Path | None, Literal["text", "chat", "tokens"]], ...] = (
            (text, "text"),
            (chat, "chat"),
            (tokens, "tokens"),
        )
        given = [cls(path, kind) for path, kind in kinds if path is not None]
        if len(given) != 1:
            raise UsageError("give exactly one of --prompt-file, --chat-prompt-file, --prompt-tokens")
        return given[0]

    def read(self) -> Prompt:
        """The file's content. Raises UsageError."""
        ids = self.path if self.kind == "tokens" else None
        prompt = read_prompt(None, self.path if ids is None else None, ids, None)
        assert prompt is not None
        return prompt

    def encode(self, prompt: Prompt, engine: Engine, system: str) -> list[int]:
        """The token ids for `engine`. `system` is used for a chat message only."""
        if self.kind == "chat":
            return prompt.encode(
                engine.tokenizer, system=system, effort="none", profile=engine.effort_profile
            )
        return prompt.as_text(engine.tokenizer)
