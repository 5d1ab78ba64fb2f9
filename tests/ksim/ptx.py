"""Rewrites inline PTX into calls of include/cuda/ptx.h: a short, explicit list of instructions."""

from __future__ import annotations

import re
from dataclasses import dataclass

_ASM = re.compile(r"\basm\b\s*(?:volatile|__volatile__)?\s*\(")
_MMA = re.compile(
    r"mma\.sync\.aligned\.(m\d+n\d+k\d+)\.row\.col(?:\.satfinite)?\.(\w+)\.(\w+)\.(\w+)\.(\w+)$"
)
_LDMATRIX = re.compile(r"ldmatrix\.sync\.aligned\.m8n8\.(x[124])(\.trans)?\.shared(?:::cta)?\.b16$")
_CONVERSIONS = ("cvt.f32.f16", "cvt.rn.f16.f32")
_OPERAND_BYTES = {"r": 4, "f": 4, "l": 8, "d": 8, "h": 2}


@dataclass(frozen=True, slots=True)
class _Statement:
    """An asm statement: its PTX and its operands in order, with the size each constraint asks for (or 0)."""

    instructions: str
    operands: list[str]
    sizes: list[int]


def _closing(text: str, opening: int) -> int:
    """The index after the bracket that closes the one before `opening`; brackets in strings do not count."""
    depth, index, quoted = 1, opening, False
    while depth:
        character = text[index]
        if character == '"' and text[index - 1] != "\\":
            quoted = not quoted
        if not quoted:
            depth += character == "("
            depth -= character == ")"
        index += 1
    return index


def _sections(body: str) -> list[str]:
    """An asm statement's parts between colons; `::` is an empty part."""
    sections, current, depth, quoted = [], "", 0, False
    for index, character in enumerate(body):
        if character == '"' and body[index - 1] != "\\":
            quoted = not quoted
        if not quoted:
            depth += character in "(["
            depth -= character in ")]"
            if character == ":" and depth == 0:
                sections.append(current)
                current = ""
                continue
        current += character
    return [*sections, current]


def _statement(body: str) -> _Statement:
    sections = _sections(body)
    text = "".join(re.findall(r'"((?:\\.|[^"\\])*)"', sections[0])).replace("\\n", "\n").replace("\\t", " ")
    operands, sizes = [], []
    for section in sections[1:3]:
        position = 0
        while found := re.compile(r'"[=+&]*(\w)"\s*\(').search(section, position):
            position = _closing(section, found.end())
            operands.append(section[found.end() : position - 1])
            sizes.append(_OPERAND_BYTES.get(found.group(1), 0))
    return _Statement(text, operands, sizes)


def _call(instruction: str, operands: list[str]) -> str:
    name = instruction.split(None, 1)[0]
    found = re.findall(r"%(\d+)|(?<![\w.%])(\d+)(?![\w.])", instruction[len(name) :])
    arguments = [operands[int(number)] if number else literal for number, literal in found]
    if matched := _MMA.match(name):
        return f"ksim_ptx::mma_{'_'.join(matched.groups())}({', '.join(arguments)});"
    if matched := _LDMATRIX.match(name):
        arguments[-1] = f"ksim_ptx::sh({arguments[-1]})"
        suffix = "_trans" if matched.group(2) else ""
        return f"ksim_ptx::ldmatrix_{matched.group(1)}{suffix}({', '.join(arguments)});"
    if name.startswith(("cp.async.commit_group", "cp.async.wait")):
        return "ksim_ptx::nop();"
    if name.startswith(("cp.async.ca", "cp.async.cg")):
        to, source, size = arguments[:3]
        return f"ksim_ptx::cp_async(ksim_ptx::sh({to}), (const void*)({source}), {size});"
    if name in _CONVERSIONS:
        return f"ksim_ptx::{name.replace('.', '_')}({', '.join(arguments)});"
    return f'ksim_fail("unsupported PTX: %s", "{name}");'


def rewrite_asm(text: str) -> str:
    """`text` (CUDA, no comments) with each asm statement as C++; unknown instructions fail when they run."""
    out, position = [], 0
    for match in _ASM.finditer(text):
        if match.start() < position:
            continue
        end = _closing(text, match.end())
        statement = _statement(text[match.end() : end - 1])
        code = ""
        for operand, size in zip(statement.operands, statement.sizes, strict=True):
            if size:
                code += (
                    f' static_assert(sizeof({operand}) == {size}, "asm operand size against its constraint");'
                )
        for instruction in re.split(r"[;\n]", statement.instructions):
            stripped = instruction.strip()
            if not stripped.startswith("mma"):
                stripped = stripped.strip("{}").strip()
            if stripped:
                code += " " + _call(stripped, statement.operands)
        lines = "\n" * text[match.start() : end].count("\n")
        out.append(text[position : match.start()] + "do {" + code + " } while (0)" + lines)
        position = end
    return "".join(out) + text[position:]
