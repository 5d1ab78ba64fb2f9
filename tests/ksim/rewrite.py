"""Rewrites kernel text where C++ and the GPU's language differ: float literals, threadgroup variables."""

from __future__ import annotations

import re

from tests.ksim.errors import KernelError

_COMMENT_OR_STRING = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\'', re.DOTALL)
_FLOAT = re.compile(r"(?<![\w.])((?:\d+\.\d*|\.\d+)(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+)(?![\w.])")
_ALIGN = re.compile(r"(?:__align__|alignas)\s*\(([^)]*)\)")
_TYPED = re.compile(
    r"\s*(?P<type>(?:const\s+|volatile\s+|unsigned\s+|signed\s+)*[\w:]+(?:\s*<[^;]*?>)?(?:::\w+)?)\s+(?P<rest>\w.*)$",
    re.DOTALL,
)


def strip_comments(text: str) -> str:
    """`text` with comments blanked, line for line; strings stay."""

    def blank(match: re.Match[str]) -> str:
        found = match.group(0)
        return found if found[0] in "\"'" else re.sub(r"[^\n]", " ", found) or " "

    return _COMMENT_OR_STRING.sub(blank, text)


def float_literals(text: str) -> str:
    """`text` with an f after each unsuffixed float: Metal has no double.

    clang's -cl-single-precision-constant is lost when a template is instantiated.
    """
    return _FLOAT.sub(r"\1f", text)


def split_at_commas(text: str) -> list[str]:
    """`text` split at the commas outside brackets."""
    parts, depth, start = [], 0, 0
    for index, character in enumerate(text):
        depth += character in "[(<{"
        depth -= character in "])>}"
        if character == "," and depth == 0:
            parts.append(text[start:index])
            start = index + 1
    return [*parts, text[start:]]


def _declarators(declaration: str, number: int, align: str, dynamic: bool) -> tuple[str, int]:
    typed = _TYPED.match(declaration)
    if typed is None:
        raise KernelError(f"threadgroup declaration not understood: {' '.join(declaration.split())}")
    kind, code = typed.group("type"), ""
    for declarator in split_at_commas(typed.group("rest")):
        named = re.match(r"\s*(\w+)\s*(.*)$", declarator, re.DOTALL)
        if named is None:
            raise KernelError(f"threadgroup declaration not understood: {' '.join(declaration.split())}")
        name, dimensions = named.group(1), " ".join(named.group(2).split())
        number += 1
        if dynamic:
            code += f" KSIM_DYN({kind}, {name});"
            continue
        alias = kind
        if "," in kind:
            alias = f"ksim_type_{number}"
            code += f" using {alias} = {kind};"
        code += f" KSIM_SHARED({number}, {alias}, {name}, {dimensions}, {align});"
    return code, number


def rewrite_shared(text: str, word: str, first: int = 0) -> str:
    """Declarations `word T a[N], b;` ("threadgroup", "__shared__") become KSIM_SHARED; pointers stay.

    Args:
        text: without comments.
        word: the address space's name.
        first: variables are numbered from here; two texts of one kernel need different numbers.

    Raises:
        KernelError: a declaration is left that would silently make a private variable.
    """
    pattern = re.compile(
        rf"(?:(?<=[;{{}}])|(?<=\n)|^)(\s*)((?:extern\s+|static\s+|const\s+)*)\b{word}\b"
        rf"([^;(){{}}]*(?:\((?:[^()]*)\)[^;(){{}}]*)*);"
    )
    out, position, number = [], 0, first
    for match in pattern.finditer(text):
        declaration, align = match.group(3), "0"
        aligned = _ALIGN.search(declaration)
        if aligned:
            align, declaration = aligned.group(1), declaration.replace(aligned.group(0), " ")
        head = re.split(r"[\[=]", declaration, maxsplit=1)[0]
        if "*" in head or "&" in head:
            continue
        code, number = _declarators(declaration, number, align, "extern" in match.group(2))
        blanks, lines = match.group(1), match.group(0)[len(match.group(1)) :].count("\n")
        out.append(text[position : match.start()] + blanks + code.strip() + "\n" * lines)
        position = match.end()
    rewritten = "".join(out) + text[position:]
    _check_rest(rewritten, word)
    return rewritten


def _check_rest(text: str, word: str) -> None:
    """Each `word` left must qualify a pointer or reference; else its variable was missed."""
    for match in re.finditer(rf"\b{word}\b", text):
        if re.match(r"\s*\(\s*\d+\s*\)\s*\]\]", text[match.end() :]):  # the attribute [[threadgroup(0)]]
            continue
        rest = re.split(r"[;=,(){}\[]", text[match.end() :], maxsplit=1)[0]
        if "*" not in rest and "&" not in rest:
            line = text[: match.start()].count("\n") + 1
            raise KernelError(
                f"line {line}: a {word} variable declared in a way that is not understood: {word}{rest}"
            )
