"""Where and how a kernel's text is broken on purpose: one function a rule, each yields edits.

Rules go by the shape of the text. A broken text that does not compile is no loss: it is not counted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tests.ksim.rewrite import split_at_commas, strip_comments

# Functions that round; a kernel's own are given by name.
ROUNDING = (
    *("rint", "round", "floor", "ceil", "trunc", "saturate"),
    *("rintf", "roundf", "floorf", "ceilf", "truncf", "nearbyintf", "lrintf"),
    *(
        "__float2half",
        "__float2half_rn",
        "__float2bfloat16",
        "__float2int_rn",
        "__float2int_rd",
        "__float2int_rz",
    ),
)
# Casts that lose digits or change what a division does, which those between wide integers do not.
NARROW = r"(?:half|bfloat|float|char|uchar|short|ushort|u?int8_t|u?int16_t|b?float16_t)[234]?"
BARRIER = re.compile(r"\b(?:threadgroup_barrier|simdgroup_barrier|__syncthreads|__syncwarp)\s*\(")
ZERO = re.compile(r"(?:\w+\s*\(\s*)?-?\s*(?:0[xX]?0*(?:\.0*)?[a-z]*|INFINITY|LOWEST)\s*\)?")
# An assignment or return ends where a choice that follows it begins.
BEFORE_CHOICE = re.compile(r"(?:[^=!<>]=|\breturn)\s$")
_SWAPS = {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}
_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


@dataclass(frozen=True, slots=True)
class Edit:
    """`text[start:end]` becomes `replacement`."""

    rule: str
    start: int
    end: int
    replacement: str


@dataclass(frozen=True, slots=True)
class Source:
    """A text's shape: comments, strings and preprocessor lines blanked, position for position."""

    shape: str
    rounding: Sequence[str]
    narrow: str  # regular expression of type names

    @classmethod
    def read(cls, text: str, rounding: Sequence[str]) -> Source:
        """The shape of `text`; `rounding` names the kernel's own functions that round their argument."""
        shape = strip_comments(text)
        shape = re.sub(r'"(?:\\.|[^"\\])*"', lambda m: " " * len(m.group(0)), shape)
        shape = re.sub(
            r"(?m)^[ \t]*#(?:[^\n\\]|\\\n|\\.)*", lambda m: re.sub(r"[^\n]", " ", m.group(0)), shape
        )
        aliases = re.findall(rf"\busing\s+(\w+)\s*=\s*(?:{NARROW}|vec\s*<[^;]*>)\s*;", shape)
        aliases += re.findall(r"\btypename\s+(\w+)", shape)
        narrow = "|".join([NARROW, r"vec\s*<[^<>;(){}]*>", *dict.fromkeys(aliases)])
        return cls(shape, (*ROUNDING, *rounding), narrow)

    def closing(self, opening: int) -> int:
        """The index of the bracket that closes the one at `opening`, -1 if none does."""
        depth = 0
        for index in range(opening, len(self.shape)):
            depth += self.shape[index] in "([{"
            depth -= self.shape[index] in ")]}"
            if depth == 0:
                return index
        return -1


def barriers(source: Source) -> Iterator[Edit]:
    """Each barrier is left out."""
    for match in BARRIER.finditer(source.shape):
        end = source.closing(match.end() - 1) + 1
        semicolon = re.compile(r"\s*;").match(source.shape, end)
        if end > 0 and semicolon:
            yield Edit("barrier", match.start(), semicolon.end(), ";")


def _relations(source: Source) -> Iterator[re.Match[str]]:
    """Comparison operators; a template's brackets have no blank before them."""
    for match in re.finditer(r"(?<=\s)(<=|>=|<|>)(?=\s)", source.shape):
        if not re.search(r"\btemplate\s*$", source.shape[: match.start()]):
            yield match


def comparisons(source: Source) -> Iterator[Edit]:
    """Each comparison takes or leaves equality."""
    for match in _relations(source):
        yield Edit("comparison", match.start(), match.end(), _SWAPS[match.group(0)])


def ties(source: Source) -> Iterator[Edit]:
    """Equality becomes inequality, and a comparison beside an equality turns round."""
    for match in re.finditer(r"(?<=\s)(==|!=)(?=\s)", source.shape):
        yield Edit("tie", match.start(), match.end(), "!=" if match.group(0) == "==" else "==")
    for match in _relations(source):
        start, end = _expression_around(source.shape, match.start())
        if re.search(r"\s==\s", source.shape[start:end]):
            yield Edit("tie", match.start(), match.end(), _TURNED[match.group(0)])


def _expression_around(shape: str, position: int) -> tuple[int, int]:
    """The statement, or part of a `for`, around a position."""
    start, end = position, position
    while start > 0 and shape[start - 1] not in ";{}":
        start -= 1
    while end < len(shape) and shape[end] not in ";{}":
        end += 1
    return start, end


def indices(source: Source) -> Iterator[Edit]:
    """Each index, also in an address that is read as another type, is one more and one less."""
    for match in re.finditer(r"(?<=[\w\])])\[(?![\[\]])", source.shape):
        end = source.closing(match.start())
        declares = re.search(
            r"[\w>]\s+\w+(?:\[[^;]*\])*(?:,\s*\w+)*$", _line_before(source.shape, match.start())
        )
        if end < 0 or declares or source.shape[end : end + 2] == "]]":
            continue
        yield from _shifted(source, "index", match.end(), end)
    for match in re.finditer(r"\*\s*\([^()]*\*\s*\)\s*\(", source.shape):
        end = source.closing(match.end() - 1)
        if end > 0:
            yield from _shifted(source, "index", match.end(), end)


def _line_before(shape: str, position: int) -> str:
    """From the statement's beginning, if it may be a declaration, to a position."""
    start, _ = _expression_around(shape, position)
    text = shape[start:position]
    return "" if re.search(r"[=(]|\breturn\b", text) else text


def _shifted(source: Source, rule: str, start: int, end: int) -> Iterator[Edit]:
    inside = source.shape[start:end].strip()
    if inside:
        first = start + source.shape[start:end].index(inside[0])
        last = first + len(inside)
        plain = re.fullmatch(r"\w+", inside)
        for step in (" + 1", " - 1"):
            yield Edit(rule, first, last, f"{inside}{step}" if plain else f"({inside}){step}")


def bounds(source: Source) -> Iterator[Edit]:
    """Each bound of a loop moves by one, in the direction that `comparisons` does not cover."""
    for match in re.finditer(r"\b(for|while)\s*\(", source.shape):
        end = source.closing(match.end() - 1)
        start = match.end()
        if end < 0:
            continue
        if match.group(1) == "for":
            parts = source.shape[start:end].split(";")
            if len(parts) != 3:
                continue
            start += len(parts[0]) + 1
            end = start + len(parts[1])
        relation = re.compile(r"\s(<=|>=|<|>|!=)\s").search(source.shape, start, end)
        if relation is None:
            continue
        last = next((m.start() for m in re.finditer(r"&&|\|\|", source.shape[relation.end() : end])), None)
        end = end if last is None else relation.end() + last
        only = {"<": " - 1", "<=": " + 1", ">": " + 1", ">=": " - 1"}.get(relation.group(1))
        for edit in _shifted(source, "bound", relation.end(), end):
            if only is None or edit.replacement.endswith(only):
                yield edit


def roundings(source: Source) -> Iterator[Edit]:
    """Each rounding and each narrowing cast is left out; as_type becomes a conversion of the value."""
    names = "|".join(map(re.escape, source.rounding))
    for match in re.finditer(
        rf"(?<![\w.])(?:(?:metal|precise|fast)::)*(?:{names}|{source.narrow})\s*\(", source.shape
    ):
        end = source.closing(match.end() - 1)
        inside = source.shape[match.end() : end]
        is_function = re.search(
            r"(?:^|[;{}])[^;{}=()]*\b(?:inline|static|void|float\w*|half\w*|u?int)\s+$",
            source.shape[max(0, match.start() - 200) : match.start()],
        )
        arguments = split_at_commas(inside)
        is_rounding = re.match(rf"(?:(?:metal|precise|fast)::)*(?:{names})\s*\(", match.group(0))
        if end < 0 or is_function or not inside.strip() or (len(arguments) > 1 and not is_rounding):
            continue
        yield Edit("rounding", match.start(), end + 1, f"({arguments[0].strip()})")
    for match in re.finditer(r"\bas_type\s*<([^<>]*)>\s*\(", source.shape):
        yield Edit("rounding", match.start(), match.end(), f"{match.group(1).strip()}(")
    for match in re.finditer(rf"\(\s*(?:{NARROW})\s*\)(?=[\w(])", source.shape):
        yield Edit("rounding", match.start(), match.end(), "")


def masks(source: Source) -> Iterator[Edit]:
    """Each guard, or each part of one, and each choice of zero or minus infinity is left out."""
    for match in re.finditer(r"\bif\s*\(", source.shape):
        start, end = match.end(), source.closing(match.end() - 1)
        parts = _conjuncts(source.shape, start, end)
        for first, last in parts:
            yield Edit("mask", first, last, "true")
    for match in re.finditer(r"\s\?\s", source.shape):
        yield from _choice(source, match)


def _conjuncts(shape: str, start: int, end: int) -> list[tuple[int, int]]:
    """The operands of the outermost && between two positions."""
    parts, depth, first = [], 0, start
    for index in range(start, end):
        depth += shape[index] in "(["
        depth -= shape[index] in ")]"
        if depth == 0 and shape.startswith("&&", index):
            parts.append((first, index))
            first = index + 2
    parts.append((first, end))
    trimmed = []
    for first, last in parts:
        inside = shape[first:last]
        if inside.strip():
            begin = first + len(inside) - len(inside.lstrip())
            trimmed.append((begin, begin + len(inside.strip())))
    return trimmed


def _choice(source: Source, question: re.Match[str]) -> Iterator[Edit]:
    """`c ? x : 0` becomes x, `c ? 0 : x` too."""
    shape, depth, colon, end = source.shape, 0, -1, question.end()
    while end < len(shape):
        character = shape[end]
        depth += character in "([{"
        depth -= character in ")]}"
        if depth < 0 or (depth == 0 and character in ";,"):
            break
        if depth == 0 and colon < 0 and shape[end - 1 : end + 2] == " : ":
            colon = end
        end += 1
    if colon < 0:
        return
    start, depth = question.start(), 0
    while start > 0:
        character = shape[start - 1]
        depth += character in ")]}"
        depth -= character in "([{"
        if depth < 0 or (
            depth == 0 and (character in ";,{}" or BEFORE_CHOICE.search(shape[max(0, start - 8) : start]))
        ):
            break
        start -= 1
    chosen, other = shape[question.end() : colon].strip(), shape[colon + 1 : end].strip()
    for branch, zero in ((chosen, other), (other, chosen)):
        if ZERO.fullmatch(zero):
            lead = len(shape[start : question.start()]) - len(shape[start : question.start()].lstrip())
            yield Edit("mask", start + lead, end, f"({branch})")


RULES: tuple[Callable[[Source], Iterator[Edit]], ...] = (
    barriers,
    comparisons,
    ties,
    indices,
    bounds,
    roundings,
    masks,
)
