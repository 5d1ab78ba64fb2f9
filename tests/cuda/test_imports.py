"""The backend and the script that measures it need few packages; which there are, the machine decides."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("folder", ["ds4cuda", "bench/device"])
def test_every_module_can_be_imported(folder: str) -> None:
    files = [path.relative_to(ROOT) for path in (ROOT / folder).rglob("*.py")]
    assert len(files) > 10
    for file in files:
        import_module(".".join(file.with_suffix("").parts).removesuffix(".__init__"))
