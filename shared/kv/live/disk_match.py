"""Whether a loaded state may go on with a prompt that begins with its key text.

Equal bytes are not enough: content that spells control strings must never pass for control tokens, whoever
wrote the file. Spec: chat §1.4, kv §7, §9.3, §13. Must not know: slots, sessions, directories.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from shared.kv.files.cache_file import CacheFile
from shared.kv.files.header import Extension
from shared.kv.live.control_tokens import ControlTokens
from shared.kv.live.prompt import Prompt

_MOST_REFUSALS: Final = 256
VISIBLE = Extension.THINKING_VISIBLE | Extension.RESPONSES_VISIBLE


def hidden_kind(file: CacheFile) -> Extension:
    """What the file's tokens hold besides its key text: 0, or the kind of visible key."""
    return file.header.extensions & VISIBLE


def resume_offset(
    tokens: Sequence[int], file: CacheFile, prompt: Prompt, controls: ControlTokens
) -> int | None:
    """How many bytes of `prompt` the loaded `tokens` of `file` stand for; None if they must not be used.

    The prompt begins with the key text. A plain state must have the prompt's control tokens exactly where the
    prompt has them. A visible one cannot be compared so; see `_visible_offset`.
    """
    if hidden_kind(file):
        return _visible_offset(tokens, file.text_bytes, prompt, controls)
    wanted = controls.of_prompt(prompt).before(file.text_bytes)
    return file.text_bytes if controls.of(tokens).same_as(wanted) else None


class Refusals:
    """Files that were loaded in vain for a prompt: the same question is not asked twice, because it costs a
    live state and a long read."""

    def __init__(self, controls: ControlTokens) -> None:
        self._controls = controls
        self._known: OrderedDict[tuple[CacheFile, bytes, bytes], None] = OrderedDict()

    def add(self, file: CacheFile, prompt: Prompt) -> None:
        self._known[self._question(file, prompt)] = None
        if len(self._known) > _MOST_REFUSALS:
            self._known.popitem(last=False)

    def covers(self, file: CacheFile, prompt: Prompt) -> bool:
        """Whether the answer is known to be no."""
        return bool(self._known) and self._question(file, prompt) in self._known

    def _question(self, file: CacheFile, prompt: Prompt) -> tuple[CacheFile, bytes, bytes]:
        """All that the answer depends on; the mark behind the text matters to visible keys."""
        asked = self._controls.of_prompt(prompt).before(file.text_bytes + 1)
        return file, asked.offsets.tobytes(), asked.ids.tobytes()


def _visible_offset(tokens: Sequence[int], end: int, prompt: Prompt, controls: ControlTokens) -> int | None:
    """Every control string of the key must be a control token of the prompt, and the messages must begin with
    the same marks in the same order. Behind an answer with hidden reasoning the prompt must end that answer.

    Some writers end the key with an end mark that was never evaluated: the prompt is taken up before it.
    """
    text, specials = prompt.rendered[:end], controls.tokenizer.specials
    wanted = controls.of_prompt(prompt).before(end)
    found = controls.of(tokens)
    heads = (specials.user, specials.assistant)
    if not controls.all_real(text, wanted) or found.only(*heads) != wanted.only(*heads):
        return None
    end_mark = controls.tokenizer.token_bytes(specials.eos)
    if text.endswith(end_mark) and tokens[-1] != specials.eos:
        return end - len(end_mark)
    if found.only(*heads, specials.eos)[-1:] != [specials.assistant]:
        return end
    ours = controls.byte_length(tokens)
    if found.since(specials.assistant, ours).same_as(wanted.since(specials.assistant, end)):
        return end  # nothing is hidden in this answer
    return end if controls.of_prompt(prompt).has(end, specials.eos) else None
