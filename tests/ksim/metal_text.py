"""A Metal text as tokens and declarations: enough of the language for the lint, by the shape of the text.

Names are collected over the whole text, without scopes: the lint errs on the side of silence, the simulator's
compiler knows scopes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tests.ksim.metal_names import ADDRESS_SPACES, KEYWORDS, TRAITS, TYPES
from tests.ksim.rewrite import strip_comments

_TOKEN = re.compile(
    r"""(?P<name>[A-Za-z_]\w*)|(?P<number>\.?\d(?:[eE][+-]|[\w.'])*)
    |(?P<string>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')
    |(?P<mark>\[\[|\]\]|::|->|\+\+|--|<<=|<<|<=|>=|==|!=|&&|\|\||[-+*/%&|^]=|.)""",
    re.VERBOSE,
)
_SPECIFIERS = frozenset(
    ["const", "constexpr", "static", "inline", "volatile", "extern", "typename", "unsigned", "signed"]
)
_DIRECTIVE = re.compile(r"^[ \t]*#[ \t]*(\w+)[ \t]*((?:[^\n\\]|\\.|\\\n)*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Token:
    """A word, number, string or mark, and its line from 1."""

    text: str
    line: int
    kind: str


@dataclass(frozen=True, slots=True)
class Directive:
    """A preprocessor line: its word, the rest of it, its line."""

    word: str
    rest: str
    line: int


@dataclass(frozen=True, slots=True)
class TypeUse:
    """A type where the text names one: its words, address spaces, and * and & marks."""

    words: tuple[str, ...]
    spaces: frozenset[str]
    marks: str
    line: int
    end: int  # index of the token after it


@dataclass(frozen=True, slots=True)
class Declaration:
    """A variable, parameter, member or function.

    `place` is "program", "struct", "parameter", "template", "kernel" (a kernel's outermost scope) or "block".
    """

    name: str
    type: TypeUse
    place: str
    line: int
    is_function: bool
    dimensions: tuple[tuple[Token, ...], ...]
    value: tuple[Token, ...]


def tokens_of(text: str, first_line: int = 1) -> list[Token]:
    """The tokens of `text`, which has no comments and no preprocessor lines."""
    tokens, line, position = [], first_line, 0
    for match in _TOKEN.finditer(text):
        line += text.count("\n", position, match.start())
        position = match.start()
        if not match.group(0).isspace():
            tokens.append(Token(match.group(0), line, match.lastgroup or "mark"))
    return tokens


@dataclass
class MetalText:
    """The parsed text."""

    tokens: list[Token]
    directives: list[Directive]
    types: set[str] = field(default_factory=set)
    enumerators: set[str] = field(default_factory=set)
    macros: dict[str, str] = field(default_factory=dict)
    declarations: list[Declaration] = field(default_factory=list)
    type_uses: list[TypeUse] = field(default_factory=list)
    aliases: dict[str, tuple[Token, ...]] = field(default_factory=dict)  # using and typedef
    places: list[str] = field(default_factory=list)  # of each token

    @classmethod
    def parse(cls, text: str) -> MetalText:
        """Reads a complete Metal text."""
        text = strip_comments(text)
        directives = []
        for match in _DIRECTIVE.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            directives.append(Directive(match.group(1), match.group(2).replace("\\\n", " ").strip(), line))
        plain = _DIRECTIVE.sub(lambda match: "\n" * match.group(0).count("\n"), text)
        parsed = cls(tokens_of(plain), directives)
        for directive in directives:
            found = re.match(r"(\w+)(?:\([^)]*\))?[ \t]*(.*)$", directive.rest, re.DOTALL)
            if directive.word == "define" and found:
                parsed.macros[found.group(1)] = found.group(2)
        parsed._collect_types()
        parsed._collect_places()
        parsed._collect_declarations()
        return parsed

    def at(self, index: int) -> str:
        """The token's text, "" beyond the ends."""
        return self.tokens[index].text if 0 <= index < len(self.tokens) else ""

    def closing(self, index: int) -> int:
        """The index of the bracket that closes the one at `index`, or the end."""
        opening = self.at(index)
        closing = {"(": ")", "[": "]", "{": "}", "<": ">", "[[": "]]"}[opening]
        depth = 0
        for i in range(index, len(self.tokens)):
            depth += self.at(i) == opening
            depth -= self.at(i) == closing
            if depth == 0:
                return i
        return len(self.tokens)

    def _collect_types(self) -> None:
        for i, token in enumerate(self.tokens):
            following = self.at(i + 1)
            if token.text in ("struct", "union", "class", "typename"):
                self.types.add(following)
            elif token.text == "enum":
                self.types.add(self.at(i + 2) if following == "class" else following)
                self._collect_enumerators(i)
            elif token.text == "using" and self.at(i + 2) == "=":
                self.types.add(following)
                self.aliases[following] = tuple(self._until(i + 3, ";"))
            elif token.text == "typedef":
                words = list(self._until(i + 1, ";"))
                if words:
                    self.types.add(words[-1].text)
                    self.aliases[words[-1].text] = tuple(words[:-1])
        self.types.discard("")

    def _collect_enumerators(self, enum: int) -> None:
        brace = next((i for i in range(enum, len(self.tokens)) if self.at(i) in ("{", ";")), len(self.tokens))
        if self.at(brace) == "{":
            for i in range(brace, self.closing(brace)):
                if self.at(i) in ("{", ","):
                    self.enumerators.add(self.at(i + 1))

    def _until(self, index: int, mark: str) -> Iterator[Token]:
        while index < len(self.tokens) and self.at(index) != mark:
            yield self.tokens[index]
            index += 1

    def _collect_places(self) -> None:
        """Where each token is, by the braces and parentheses around it."""
        stack, statement, parentheses = ["program"], 0, 0
        for i, token in enumerate(self.tokens):
            self.places.append(
                "parameter" if parentheses and stack[-1] in ("program", "struct") else stack[-1]
            )
            if token.text == "(":
                parentheses += 1
            elif token.text == ")":
                parentheses -= 1
            elif token.text == "{":
                stack.append(self._opened(i, statement, stack[-1]))
                statement = i + 1
            elif token.text == "}":
                stack = stack[:-1] or ["program"]
                statement = i + 1
            elif token.text == ";" and not parentheses:
                statement = i + 1

    def _opened(self, brace: int, statement: int, around: str) -> str:
        words = [token.text for token in self.tokens[statement:brace]]
        if around in ("program", "struct"):
            if "namespace" in words:
                return around
            if "(" in words:
                return "kernel" if "kernel" in words else "block"
            if {"struct", "union", "class"} & set(words):
                return "struct"
        return "block"

    def type_at(self, index: int) -> TypeUse | None:
        """The type that begins at a token, with its marks, if one does."""
        words: list[str] = []
        spaces, marks, i, named = set(), "", index, False
        while i < len(self.tokens):
            text = self.at(i)
            if text in ADDRESS_SPACES and self.at(i + 1) != "(":
                spaces.add(text)
            elif text in _SPECIFIERS:
                named = named or text in ("unsigned", "signed")
                words.append(text)
            elif not named and text == "metal" and self.at(i + 1) == "::":
                i += 1
            elif not named and (text in TYPES or text in TRAITS or text in self.types):
                named = True
                words.append(text)
                if self.at(i + 1) == "<":
                    end = self.closing(i + 1)
                    words += [token.text for token in self.tokens[i + 1 : end + 1]]
                    i = end
                while self.at(i + 1) == "::":
                    words += ["::", self.at(i + 2)]
                    i += 2
            else:
                break
            i += 1
        while named and self.at(i) in ("*", "&", "&&"):
            marks += self.at(i)
            i += 1
            while self.at(i) in ("const", "restrict", "volatile") or self.at(i) in ADDRESS_SPACES:
                i += 1
        if not named:
            return None
        return TypeUse(tuple(words), frozenset(spaces), marks, self.tokens[index].line, i)

    def _collect_declarations(self) -> None:
        i = 0
        while i < len(self.tokens):
            token = self.tokens[i]
            if token.text == "[[":
                i = self.closing(i) + 1
                continue
            can_start = token.kind == "name" and self.at(i - 1) not in (".", "->", "struct", "enum", "using")
            use = self.type_at(i) if can_start else None
            if use is None:
                i += 1
                continue
            self.type_uses.append(use)
            name = self.at(use.end)
            if re.match(r"[A-Za-z_]", name) and name not in KEYWORDS:
                self._declare(use, use.end)
            # Types inside template arguments are uses of their own.
            inner = next((k for k in range(i, use.end) if self.at(k) == "<"), use.end)
            i = inner + 1 if inner < use.end else use.end

    def _declare(self, use: TypeUse, index: int) -> None:
        """Records the declarator at `index` and, in a statement, those after its commas."""
        place = self._place_of(index)
        while True:
            name, i, dimensions = self.tokens[index], index + 1, []
            while self.at(i) == "[":
                end = self.closing(i)
                dimensions.append(tuple(self.tokens[i + 1 : end]))
                i = end + 1
            is_function = self.at(i) == "(" and place in ("program", "struct")
            value: Sequence[Token] = ()
            if self.at(i) in ("=", "{", "(") and not is_function:
                end = self._initialiser_end(i)
                value, i = self.tokens[i + 1 : end], end
            self.declarations.append(
                Declaration(name.text, use, place, name.line, is_function, tuple(dimensions), tuple(value))
            )
            if self.at(i) != "," or place in ("parameter", "template"):
                return
            index = i + 1
            while self.at(index) in ("*", "&"):
                index += 1
            if index >= len(self.tokens) or self.tokens[index].kind != "name":
                return

    def _place_of(self, index: int) -> str:
        """The place of a declared name; names between < and > of a template list have one of their own."""
        depth, i = 0, index
        while i >= 0 and self.at(i) not in (";", "{", "}"):
            depth += (self.at(i) == "<") - (self.at(i) == ">")
            if self.at(i) == "template" and depth > 0:
                return "template"
            i -= 1
        return self.places[index]

    def _initialiser_end(self, index: int) -> int:
        i = index
        while i < len(self.tokens) and self.at(i) not in (",", ";", ")"):
            i = self.closing(i) + 1 if self.at(i) in ("(", "[", "{") else i + 1
        return i
