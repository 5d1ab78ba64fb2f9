"""pytest as on a machine that has a GPU, NumPy, CuPy, tokenizers and pytest, and nothing else of ours.

`python -m tests.cuda.bare_machine ARGUMENTS OF PYTEST`. CuPy is the stand-in, the GPU the simulator; every
other package is refused, and so is the simulator itself where a test asks for it by name.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, cast

THIRD_PARTY = {"numpy", "cupy", "tokenizers", "pytest"}
# What pytest brings along.
_OF_PYTEST = {"_pytest", "pluggy", "iniconfig", "packaging", "pygments", "exceptiongroup", "tomli", "py"}
_OURS = {"ds4cuda", "shared", "tests", "bench"}
_REFUSED = ("tests.ksim", "tests.cuda.cupy_standin", "tests.cuda.strict_cupy")


class Refusing:
    """Finds no module that such a machine does not have."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        top = name.partition(".")[0]
        known = (
            top.startswith("_sysconfigdata")
            or top in sys.stdlib_module_names
            or top in THIRD_PARTY | _OF_PYTEST | _OURS
        )
        if not known or name.startswith(_REFUSED):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return None


def main(arguments: list[str]) -> int:
    from tests.cuda.on_device import VARIABLE
    from tests.cuda.strict_cupy import StrictCupy

    sys.modules["cupy"] = cast("Any", StrictCupy())
    for name in [name for name in sys.modules if name.startswith(_REFUSED)]:
        del sys.modules[name]
    sys.meta_path.insert(0, cast("Any", Refusing()))
    os.environ |= {VARIABLE: "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    import pytest

    return int(pytest.main(["--confcutdir=tests/cuda", "-p", "no:cacheprovider", *arguments]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
