"""Constant expressions and sizes of a Metal text: how many bytes a threadgroup array takes."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence

from tests.ksim.metal_names import MATRICES, PACKED_VECTORS, SCALAR_BYTES, VECTORS
from tests.ksim.metal_text import Declaration, MetalText, Token, tokens_of

Number = int | float
_BINARY: dict[str, tuple[int, Callable[[Number, Number], Number]]] = {
    "||": (1, lambda a, b: int(bool(a) or bool(b))),
    "&&": (2, lambda a, b: int(bool(a) and bool(b))),
    "|": (3, lambda a, b: int(a) | int(b)),
    "^": (4, lambda a, b: int(a) ^ int(b)),
    "&": (5, lambda a, b: int(a) & int(b)),
    "==": (6, operator.eq),
    "!=": (6, operator.ne),
    "<": (7, operator.lt),
    ">": (7, operator.gt),
    "<=": (7, operator.le),
    ">=": (7, operator.ge),
    "<<": (8, lambda a, b: int(a) << int(b)),
    ">>": (8, lambda a, b: int(a) >> int(b)),
    "+": (9, operator.add),
    "-": (9, operator.sub),
    "*": (10, operator.mul),
    "/": (10, lambda a, b: int(a / b) if isinstance(a, int) and isinstance(b, int) else a / b),
    "%": (10, operator.mod),
}
_UNARY: dict[str, Callable[[Number], Number]] = {
    "-": operator.neg,
    "+": operator.pos,
    "!": lambda value: int(not value),
    "~": lambda value: ~int(value),
}
_INSTANCE = re.compile(r"decltype\s*\(\s*\w+\s*<([^;]*)>\s*\)")
_TEMPLATE = re.compile(r"template\s*<([^>]*)>\s*\[\[kernel\]\]")


class NotConstant(ValueError):
    """An expression that the compiler could not know either, or that is beyond this reader."""


class Sizes:
    """Values of constants and sizes of types in one text."""

    def __init__(self, text: str, parsed: MetalText) -> None:
        self._parsed = parsed
        self._constants: dict[str, Sequence[Token]] = {
            name: tokens_of(body) for name, body in parsed.macros.items() if body
        }
        for declaration in parsed.declarations:
            words = {*declaration.type.words, *declaration.type.spaces}
            if declaration.value and {"constexpr", "constant"} & words and not declaration.dimensions:
                self._constants[declaration.name] = declaration.value
        self._types: dict[str, Sequence[Token]] = dict(parsed.aliases)
        self._read_instance(text)

    def _read_instance(self, text: str) -> None:
        """The template arguments that MLX instantiates the kernel with."""
        instance, template = _INSTANCE.search(text), _TEMPLATE.search(text)
        if instance is None or template is None:
            return
        for parameter, argument in zip(
            template.group(1).split(","), instance.group(1).split(","), strict=True
        ):
            kind, name = parameter.split()
            (self._types if kind == "typename" else self._constants)[name] = tokens_of(argument)

    def value(self, tokens: Sequence[Token]) -> Number:
        """A constant expression's value.

        Raises:
            NotConstant: it is none.
        """
        reader = _Reader(self, list(tokens))
        value = reader.ternary()
        if reader.rest():
            raise NotConstant(f"{reader.rest()[0].text!r} in a constant expression")
        return value

    def constant(self, name: str) -> Number:
        """The value of a named constant."""
        if name in ("true", "false"):
            return int(name == "true")
        tokens = self._constants.get(name)
        if tokens is None:
            raise NotConstant(f"{name!r} is not a constant")
        return self.value(tokens)

    def of_declaration(self, declaration: Declaration) -> int:
        """Bytes of a variable or member."""
        size, _ = self.of_type(declaration.type.words)
        for dimension in declaration.dimensions:
            size *= int(self.value(dimension))
        return size

    def of_type(self, words: Sequence[str]) -> tuple[int, int]:
        """Size and alignment in bytes of a type."""
        names = [
            word for word in words if word not in ("const", "volatile", "constexpr", "static", "typename")
        ]
        name, arguments = (names or [""])[0], names[2:-1] if len(names) > 2 else []
        if name in PACKED_VECTORS:
            scalar, count = PACKED_VECTORS[name]
            return SCALAR_BYTES[scalar] * count, SCALAR_BYTES[scalar]
        if name in ("atomic", "vec", "packed_vec"):
            return self._template(name, arguments)
        if name in self._types:
            return self.of_type([token.text for token in self._types[name]])
        return _plain(name) or self._struct(name)

    def _template(self, name: str, arguments: Sequence[str]) -> tuple[int, int]:
        if name == "atomic":
            return self.of_type(arguments)
        comma = arguments.index(",")
        size, align = self.of_type(arguments[:comma])
        count = int(self.value(tokens_of(" ".join(arguments[comma + 1 :]))))
        return (size * count, align) if name == "packed_vec" else _vector(size, count)

    def _struct(self, name: str) -> tuple[int, int]:
        tokens = self._parsed.tokens
        start = next(
            (i for i, t in enumerate(tokens) if t.text == "struct" and self._parsed.at(i + 1) == name), None
        )
        if start is None:
            raise NotConstant(f"the size of {name!r} is not known")
        first, last = tokens[start].line, self._end_line(start)
        offset, alignment = 0, 1
        for member in self._parsed.declarations:
            if member.place == "struct" and first <= member.line <= last and not member.is_function:
                _, align = self.of_type(member.type.words)
                offset = -(-offset // align) * align + self.of_declaration(member)
                alignment = max(alignment, align)
        return -(-offset // alignment) * alignment, alignment

    def _end_line(self, start: int) -> int:
        brace = start
        while self._parsed.at(brace) not in ("{", ";", ""):
            brace += 1
        end = self._parsed.closing(brace) if self._parsed.at(brace) == "{" else brace
        return self._parsed.tokens[min(end, len(self._parsed.tokens) - 1)].line


def _vector(scalar: int, count: int) -> tuple[int, int]:
    """Size and alignment of a vector: three elements take the room of four."""
    size = scalar * (4 if count == 3 else count)
    return size, size


def _plain(name: str) -> tuple[int, int] | None:
    """Size and alignment of a scalar, vector or matrix; None of anything else."""
    if name in SCALAR_BYTES:
        return SCALAR_BYTES[name], SCALAR_BYTES[name]
    if name in VECTORS:
        scalar, count = VECTORS[name]
        return _vector(SCALAR_BYTES[scalar], count)
    if name in MATRICES:
        scalar, columns, rows = MATRICES[name]
        size, align = _vector(SCALAR_BYTES[scalar], rows)
        return size * columns, align
    return None


class _Reader:
    """Reads one expression, by precedence."""

    def __init__(self, sizes: Sizes, tokens: list[Token]) -> None:
        self._sizes = sizes
        self._tokens = tokens
        self._next = 0

    def rest(self) -> list[Token]:
        return self._tokens[self._next :]

    def _peek(self) -> str:
        text = self._tokens[self._next].text if self._next < len(self._tokens) else ""
        following = self._tokens[self._next + 1].text if self._next + 1 < len(self._tokens) else ""
        return ">>" if text == ">" and following == ">" else text

    def _take(self) -> str:
        text = self._peek()
        if not text:
            raise NotConstant("an expression ends early")
        self._next += 2 if text == ">>" else 1
        return text

    def ternary(self) -> Number:
        condition = self._binary(1)
        if self._peek() != "?":
            return condition
        self._take()
        chosen = self.ternary()
        if self._take() != ":":
            raise NotConstant("a conditional expression without ':'")
        other = self.ternary()
        return chosen if condition else other

    def _binary(self, least: int) -> Number:
        left = self._unary()
        while self._peek() in _BINARY and _BINARY[self._peek()][0] >= least:
            precedence, function = _BINARY[self._take()]
            left = function(left, self._binary(precedence + 1))
        return left

    def _unary(self) -> Number:
        text = self._take()
        if text in _UNARY:
            return _UNARY[text](self._unary())
        if text == "(":
            value = self.ternary()
            if self._take() != ")":
                raise NotConstant("a bracket is not closed")
            return value
        if text[0].isdigit() or text[0] == ".":
            return _number(text)
        if self._peek() == "(":
            return self._call(text)
        return self._sizes.constant(text)

    def _call(self, name: str) -> Number:
        self._take()
        if name == "sizeof":
            words = []
            while self._peek() != ")":
                words.append(self._take())
            self._take()
            return self._sizes.of_type(words)[0]
        arguments = [self.ternary()]
        while self._peek() == ",":
            self._take()
            arguments.append(self.ternary())
        self._take()
        if name in ("min", "max"):
            return (min if name == "min" else max)(arguments)
        if name in SCALAR_BYTES and len(arguments) == 1:
            return arguments[0] if name in ("float", "half", "bfloat") else int(arguments[0])
        raise NotConstant(f"{name!r} is not known to be constant")


def _number(text: str) -> Number:
    plain = text.replace("'", "").lower()
    if plain.startswith("0x"):
        return int(plain.rstrip("ul"), 16)
    if re.search(r"[.e]", plain) or plain.endswith(("f", "h")):
        return float(plain.rstrip("fhb"))
    return int(plain.rstrip("ul"), 0)
