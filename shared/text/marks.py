"""The control strings of the DeepSeek V4 prompt format. Owns the spellings, never the token ids."""

from __future__ import annotations

from typing import Final

BOS: Final = "<｜begin▁of▁sentence｜>"
EOS: Final = "<｜end▁of▁sentence｜>"
USER: Final = "<｜User｜>"
ASSISTANT: Final = "<｜Assistant｜>"
THINK: Final = "<think>"
THINK_END: Final = "</think>"
DSML: Final = "｜DSML｜"
REMINDER: Final = "<｜latest_reminder｜>"

# A vocabulary without one of these cannot run the chat format.
REQUIRED: Final = (BOS, EOS, USER, ASSISTANT, THINK, THINK_END, DSML)

# Everything a reader removes from an answer when the model writes it outside its place.
TASK_MARKS: Final = (
    "<｜action｜>",
    "<｜query｜>",
    "<｜authority｜>",
    "<｜domain｜>",
    "<｜title｜>",
    "<｜read_url｜>",
)
PAD: Final = "<｜▁pad▁｜>"
ALL: Final = (*REQUIRED, PAD, REMINDER, *TASK_MARKS)
