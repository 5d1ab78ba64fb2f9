"""The tokens that a sweep runs over: raw text, one chat message, or exact ids."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from shared.errors import UsageError
from shared.session import Engine


@dataclass(frozen=True, slots=True)
class PromptSource:
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


def read_prompt(source: PromptSource, engine: Engine, system: str) -> list[int]:
    """The prompt's token ids."""
    from shared.text.messages import Message
    from shared.text.template import render_chat

    if source.kind == "tokens":
        from apps.chat.prompt_source import read_token_file

        return read_token_file(source.path, engine.shape.vocabulary_size)
    try:
        content = source.path.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {source.path}: {error.strerror}") from error
    if source.kind == "text":
        return engine.tokenizer.encode_text(content)
    messages = [Message("system", system)] if system else []
    messages.append(Message("user", content.decode("utf-8", "replace")))
    segments = render_chat(messages, None, effort="none", profile=engine.effort_profile)
    return engine.tokenizer.encode_segments(segments)
