"""Finds pointers without the right address space, by having clang parse a kernel as OpenCL C++.

In that language, with the generic address space off, a pointer to device memory cannot be given to one to
threadgroup memory, nor to one without a space, as in Metal. An unqualified pointer is taken for one to thread
memory; metal_lint.py refuses it by its text.
"""

from __future__ import annotations

import re
import subprocess

from tests.ksim.metal import ATTRIBUTES
from tests.ksim.metal_names import MATRICES, PACKED_VECTORS, VECTORS
from tests.ksim.rewrite import float_literals, strip_comments
from tests.ksim.signature import closing_bracket
from tests.ksim.toolchain import INCLUDE, compiler

_FLAGS = (
    *(
        "-x",
        "cl",
        "-cl-std=clc++2021",
        "-cl-no-stdinc",
        "-fsyntax-only",
        "-Wno-everything",
        "-ferror-limit=20",
    ),
    *("-Xclang", "-cl-ext=-__opencl_c_generic_address_space,-__opencl_c_pipes,-__opencl_c_device_enqueue"),
    *("-include", str(INCLUDE / "msl_lint.h")),
)
_KERNEL = re.compile(r"(?:template\s*<([^>]*)>\s*)?\[\[kernel\]\]\s+void\s+\w+\s*\(")
_INSTANCE = re.compile(r"decltype\s*\(\s*\w+\s*<([^;]*)>\s*\)")
_VECTOR = "|".join(sorted((*VECTORS, *PACKED_VECTORS, *MATRICES), key=len, reverse=True))
_MAKE = re.compile(rf"(?<![\w.])(?P<type>{_VECTOR}|vec\s*<[^<>;(){{}}]*>)\s*\(")
_ERROR = re.compile(r"^<stdin>:(\d+):\d+: (?:fatal )?error: (.*)$", re.MULTILINE)
_OUTSIDE = re.compile(r"^(?:\S+:\d+:\d+: )?(?:fatal )?error: .*$", re.MULTILINE)


def _vector_aliases(text: str) -> str:
    """Names that the text gives to vector types, as alternatives of a regular expression."""
    names = re.findall(rf"\busing\s+(\w+)\s*=\s*(?:{_VECTOR}|vec\s*<[^;]*>)\s*;", text)
    names += re.findall(rf"\btypedef\s+(?:{_VECTOR}|vec\s*<[^;]*>)\s+(\w+)\s*;", text)
    return "|".join(names)


def _with_constructors(text: str) -> str:
    """Vector constructors as calls of ksim_make, structs with a copy from each address space."""
    text = _MAKE.sub(r"ksim_make<\g<type>>(", text)
    if aliases := _vector_aliases(text):
        text = re.sub(rf"(?<![\w.])({aliases})\s*\(", r"ksim_make<\1>(", text)

    def copies(match: re.Match[str]) -> str:
        name = match.group(1)
        if re.search(rf"\b{name}\s*\{{|\b{name}\s+\w+\s*=\s*\{{", text[match.end() :]):
            return match.group(0)  # initialised by a list, which constructors would forbid
        spaces = ("device", "threadgroup", "constant", "thread")
        made = " ".join(f"{name}(const {space} {name}&);" for space in spaces)
        return f"{match.group(0)} {name}() = default; {made}"

    return re.sub(r"\bstruct\s+(\w+)\s*\{", copies, text)


def _as_locals(parameters: str) -> str:
    """A kernel's parameters as variables of its body."""
    declared = []
    for parameter in re.sub(r"\[\[.*?\]\]", "", parameters).split(","):
        words = " ".join(parameter.split())
        kind, name = re.match(r"(.*?)(\w+)$", words).groups()  # type: ignore[union-attr]
        if "*" in kind:
            declared.append(f"{words} = nullptr;")
        elif "&" in kind:
            declared.append(f"{words} = *({kind.replace('&', '*')})nullptr;")
        elif name in ATTRIBUTES:
            declared.append(f"{words} = {{}};")
    return " ".join(declared)


def opencl_text(text: str) -> str:
    """A kernel's Metal text as OpenCL C++, line for line.

    Args:
        text: all that MLX would compile but its preamble, with one kernel.

    Raises:
        ValueError: there is no kernel.
    """
    text = float_literals(strip_comments(text))
    found = _KERNEL.search(text)
    if found is None:
        raise ValueError("no [[kernel]] function in the text")
    end = closing_bracket(text, found.end())
    brace = text.index("{", end) + 1
    body_end = closing_bracket(text, brace)
    instance, arguments = _INSTANCE.search(text, body_end), []
    if found.group(1) and instance:
        for parameter, value in zip(found.group(1).split(","), instance.group(1).split(","), strict=True):
            kind, name = parameter.split()
            arguments.append(
                f"using {name} = {value};" if kind == "typename" else f"constexpr {kind} {name} = {value};"
            )
    lines = "\n" * text.count("\n", found.start(), brace)
    opened = f"__kernel void ksim_kernel() {{ {' '.join(arguments)} {_as_locals(text[found.end() : end])}"
    return _with_constructors(text[: found.start()] + lines + opened + text[brace:body_end] + "}\n")


def address_space_errors(text: str) -> list[str]:
    """What clang says of a kernel's address spaces, "line N: message"; empty if nothing.

    Lines are those of `text`. Anything else that clang does not understand is reported as well.
    """
    command = [compiler()[0], *_FLAGS, "-"]
    done = subprocess.run(command, input=opencl_text(text), capture_output=True, text=True, check=False)
    found = [f"line {line}: {message}" for line, message in _ERROR.findall(done.stderr)]
    if done.returncode and not found:
        found = _OUTSIDE.findall(done.stderr)[:5] or [f"clang failed: {done.stderr[:500]}"]
    return found
