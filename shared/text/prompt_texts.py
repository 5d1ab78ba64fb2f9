"""The constant texts of the V4 prompt format (published by DeepSeek, MIT), as data.

Every character is part of what the model was trained on and of every cache key: never reflow them.
"""

from __future__ import annotations

from typing import Final

DEFAULT_SYSTEM: Final = "You are a helpful assistant"

EFFORT_ABSOLUTE_MAXIMUM: Final = (
    "Reasoning Effort: Absolute maximum with no shortcuts permitted.\n"
    "You MUST be very thorough in your thinking and comprehensively decompose the problem to resolve the root"
    " cause, rigorously stress-testing your logic against all potential paths, edge cases, and adversarial"
    " scenarios.\n"
    "Explicitly write out your entire deliberation process, documenting every intermediate step, considered"
    " alternative, and rejected hypothesis to ensure absolutely no assumption is left unchecked.\n"
    "\n"
)

EFFORT_BEYOND_MAXIMUM: Final = (
    "Reasoning Effort: Beyond maximum — exhaustive, relentless, and uncompromising.\n"
    "You MUST reason with the utmost depth and rigor, leaving absolutely nothing to chance: exhaustively"
    " decompose the problem into its most fundamental components, trace every causal chain to its root, and"
    " resolve the underlying cause rather than any surface symptom.\n"
    "Do not stop reasoning until you have independently verified the solution from multiple angles and are"
    " certain that no assumption remains unchecked and no error remains undiscovered.\n"
    "\n"
)

# The schemas stand between the two halves, one function object per line. The sentence on literal values is
# this project's own; the rest is the published text without its final newline.
TOOLS_BEFORE_SCHEMAS: Final = """\
## Tools

You have access to a set of tools to help answer the user's question. You can invoke tools by writing a \
"<｜DSML｜tool_calls>" block like the following:

<｜DSML｜tool_calls>
<｜DSML｜invoke name="$TOOL_NAME">
<｜DSML｜parameter name="$PARAMETER_NAME" string="true|false">$PARAMETER_VALUE</｜DSML｜parameter>
...
</｜DSML｜invoke>
<｜DSML｜invoke name="$TOOL_NAME2">
...
</｜DSML｜invoke>
</｜DSML｜tool_calls>

String parameters should be specified as is and set `string="true"`. \
Write string values literally, without XML or HTML escaping; only the text `</｜DSML｜parameter>` inside a \
value must be written as `&lt;/｜DSML｜parameter>`. \
For all other types (numbers, booleans, arrays, objects), pass the value in JSON format and set \
`string="false"`.

If thinking_mode is enabled (triggered by <think>), you MUST output your complete reasoning inside \
<think>...</think> BEFORE any tool calls or final response.

Otherwise, output directly after </think> with tool calls or final response.

### Available Tool Schemas

"""

TOOLS_AFTER_SCHEMAS: Final = (
    "\n\nYou MUST strictly follow the above defined tool name and parameter schemas to invoke tool calls."
)
