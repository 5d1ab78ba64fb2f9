"""Reads the complete Metal text of a kernel and says what Apple's compiler would refuse or leave undefined.

The simulator is more lenient than Metal. What our kernels have no use for is refused even where Metal allows
it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from tests.ksim.metal_names import (
    ADDRESS_SPACES,
    ATTRIBUTES,
    FORBIDDEN,
    KEYWORDS,
    LIBRARY,
    MEMBERS,
    MLX_PREAMBLE,
)
from tests.ksim.metal_sizes import NotConstant, Sizes
from tests.ksim.metal_text import MetalText, tokens_of

MAX_THREADS = 1024
MAX_THREADGROUP_BYTES = 32 * 1024
_SWIZZLE = re.compile(r"[xyzw]{1,4}|[rgba]{1,4}")
_INCLUDE = re.compile(r"<metal_\w+>")
_PRAGMA = re.compile(r"unroll|clang loop unroll|METAL fp")
_CONDITIONAL = frozenset(["if", "ifdef", "ifndef", "elif", "else", "endif", "undef", "define"])


def lint(text: str, threads: int) -> list[str]:
    """What is wrong with a kernel's text, one line each; empty when nothing is.

    Args:
        text: all that MLX would compile but its own preamble, as `signature.mlx_source` gives it.
        threads: threads in a threadgroup at its launch.
    """
    parsed = MetalText.parse(text)
    found = [
        *_launch(threads),
        *_directives(parsed),
        *_names(parsed),
        *_words(parsed),
        *_pointers(parsed),
        *_variables(parsed),
        *_collisions(parsed),
        *_threadgroup_memory(text, parsed),
    ]
    return list(dict.fromkeys(found))


def _launch(threads: int) -> Iterator[str]:
    if not 1 <= threads <= MAX_THREADS:
        yield f"{threads} threads in a threadgroup, at most {MAX_THREADS} are allowed"


def _directives(parsed: MetalText) -> Iterator[str]:
    for directive in parsed.directives:
        fine = (
            directive.word in _CONDITIONAL
            or (directive.word == "include" and _INCLUDE.fullmatch(directive.rest))
            or (directive.word == "pragma" and _PRAGMA.match(directive.rest))
        )
        if not fine:
            yield f"line {directive.line}: #{directive.word} {directive.rest}"


def _macro_words(parsed: MetalText) -> Iterator[tuple[str, int]]:
    for directive in parsed.directives:
        found = re.match(r"\w+(?:\(([^)]*)\))?(.*)$", directive.rest, re.DOTALL)
        if directive.word != "define" or found is None:
            continue
        own = set(re.findall(r"\w+", found.group(1) or ""))
        for token in tokens_of(found.group(2)):
            if token.kind == "name" and token.text not in own:
                yield token.text, directive.line


def _names(parsed: MetalText) -> Iterator[str]:
    """Each name is Metal's or declared here; each attribute is Metal's."""
    declared = (
        parsed.types
        | parsed.enumerators
        | set(parsed.macros)
        | {declaration.name for declaration in parsed.declarations}
    )
    known = declared | LIBRARY | KEYWORDS | ADDRESS_SPACES | FORBIDDEN
    in_attribute = False
    for i, token in enumerate(parsed.tokens):
        if token.text in ("[[", "]]"):
            in_attribute = token.text == "[["
            continue
        if token.kind != "name":
            continue
        if in_attribute:
            if token.text not in ATTRIBUTES:
                yield f"line {token.line}: attribute [[{token.text}]] is none of a compute kernel"
        elif parsed.at(i - 1) in (".", "->"):
            if not _SWIZZLE.fullmatch(token.text) and token.text not in MEMBERS | declared:
                yield f"line {token.line}: member {token.text!r} is neither Metal's nor declared here"
        elif token.text not in known and not (parsed.at(i - 1) == "::" and token.text in MEMBERS):
            yield f"line {token.line}: {token.text!r} is neither a name of Metal nor declared here"
    for word, line in _macro_words(parsed):
        if word not in known:
            yield f"line {line}: {word!r} in a macro is neither a name of Metal nor declared here"


def _words(parsed: MetalText) -> Iterator[str]:
    """C++ that Metal does not have."""
    for i, token in enumerate(parsed.tokens):
        if token.text in FORBIDDEN:
            yield f"line {token.line}: {token.text!r} does not exist in Metal, or not in a kernel"
        if token.text == "long" and parsed.at(i + 1) == "long":
            yield f"line {token.line}: 'long long' does not exist in Metal"
        if token.kind == "number" and re.search(r"(?i)ll", token.text):
            yield f"line {token.line}: suffix of {token.text} does not exist in Metal"
        before = parsed.tokens[i - 1] if i else None
        is_index = before is not None and (before.kind == "name" or before.text in ("]", ")", "}"))
        if token.text == "[" and not is_index and parsed.at(i + 1) in ("&", "=", "]"):
            yield f"line {token.line}: a lambda expression"


def _pointers(parsed: MetalText) -> Iterator[str]:
    for use in parsed.type_uses:
        name = " ".join(use.words) + use.marks
        if use.marks and not use.spaces:
            yield f"line {use.line}: {name} has no address space"
        if "**" in use.marks:
            yield f"line {use.line}: {name} is a pointer to a pointer"
        if len(use.spaces) > 1:
            yield f"line {use.line}: {name} has the address spaces {' and '.join(sorted(use.spaces))}"


def _variables(parsed: MetalText) -> Iterator[str]:
    """Variables are where their address space allows."""
    for declaration in parsed.declarations:
        spaces, where = declaration.type.spaces, f"line {declaration.line}: {declaration.name!r}"
        if (
            declaration.is_function
            or declaration.type.marks
            or declaration.place in ("parameter", "template")
        ):
            continue
        if "device" in spaces:
            yield f"{where} is a variable in device memory"
        if declaration.place == "program" and "constant" not in spaces:
            yield f"{where} is outside a function and not in constant memory"
        if declaration.place in ("kernel", "block") and "constant" in spaces:
            yield f"{where} is in constant memory inside a function"
        if "threadgroup" not in spaces:
            continue
        if declaration.place != "kernel":
            yield f"{where} is a threadgroup variable outside a kernel's outermost scope"
        if declaration.value:
            yield f"{where} is a threadgroup variable with an initial value"


def _collisions(parsed: MetalText) -> Iterator[str]:
    """Names outside functions that are Metal's, or those of MLX's preamble, which comes first."""
    outside = {d.name: d.line for d in parsed.declarations if d.place == "program"}
    outside |= {
        d.rest.split("(")[0].split()[0]: d.line for d in parsed.directives if d.word == "define" and d.rest
    }
    for i, token in enumerate(parsed.tokens):
        introduces = token.text in ("struct", "enum", "class") or (
            token.text == "using" and parsed.at(i + 2) == "="
        )
        if introduces and parsed.places[i] == "program":
            outside[parsed.at(i + 1)] = token.line
        if token.text == "typedef" and parsed.places[i] == "program":
            end = next((k for k in range(i, len(parsed.tokens)) if parsed.at(k) == ";"), i + 1)
            outside[parsed.at(end - 1)] = token.line
    for name, line in outside.items():
        if name in LIBRARY:
            yield f"line {line}: {name!r} is a name of Metal"
        elif name in MLX_PREAMBLE:
            yield f"line {line}: {name!r} is a name of MLX's preamble"


def _threadgroup_memory(text: str, parsed: MetalText) -> Iterator[str]:
    sizes, total = Sizes(text, parsed), 0
    for declaration in parsed.declarations:
        is_variable = not declaration.type.marks and declaration.place in ("kernel", "block")
        if "threadgroup" not in declaration.type.spaces or not is_variable:
            continue
        where = f"line {declaration.line}: threadgroup {declaration.name!r}"
        if any(not dimension for dimension in declaration.dimensions):
            yield f"{where} has no size"
            continue
        try:
            total += -(-sizes.of_declaration(declaration) // 16) * 16
        except NotConstant as reason:
            yield f"{where} has a size that is not constant: {reason}"
    if total > MAX_THREADGROUP_BYTES:
        yield f"{total} bytes of threadgroup memory, at most {MAX_THREADGROUP_BYTES} are allowed"
