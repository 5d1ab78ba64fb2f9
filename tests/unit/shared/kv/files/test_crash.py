"""A process that dies while it writes: at every line of the code that does, with nothing cleaned up."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from shared.kv.files.cache_file import TEXT_AT, is_cache_name
from shared.kv.files.cache_reader import open_cache_file
from tests.support.cache_contents import NAME, OTHER_PAYLOAD, TEXT

ROOT = Path(__file__).resolve().parents[5]

# The parent forks before each try. The child counts the lines it runs in the writing modules and leaves
# at the given one without any clean-up, as a killed process does. What it leaves stays in its own directory.
SCRIPT = """
import os, sys
from pathlib import Path
from shared.kv.files.header import Extension
from shared.kv.files.cache_writer import replace_trailer, touch
from shared.kv.files.trailers import encode_tool_map
from tests.support.cache_contents import OTHER_PAYLOAD, NOW, written

base, what = Path(sys.argv[1]), sys.argv[2]
MODULES = ("cache_writer.py", "replacement.py", "checksum.py")


def act(directory, old):
    if what == "write":
        written(directory, OTHER_PAYLOAD, created_at=NOW + 1)
    elif what == "touch":
        touch(old, NOW + 1)
    else:
        replace_trailer(old, encode_tool_map({"call_b": b"<two>"}), Extension.TOOL_MAP, NOW + 1)


def die_at(last):
    left = last

    def trace(frame, event, argument):
        nonlocal left
        if not frame.f_code.co_filename.endswith(MODULES):
            return None
        if event == "line":
            if not left:
                os._exit(7)
            left -= 1
        return trace

    sys.settrace(trace)


for last in range(1000):
    directory = base / str(last)
    directory.mkdir()
    old = written(directory, trailer=encode_tool_map({"call_a": b"<one>"}), extensions=Extension.TOOL_MAP)
    child = os.fork()
    if not child:
        die_at(last)
        act(directory, old)
        os._exit(0)
    if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0:
        print(last)
        break
"""


def killed_everywhere(directory: Path, what: str) -> int:
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(directory), what],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return int(json.loads(run.stdout))


@pytest.fixture(scope="module")
def replaced(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """A directory for each line at which the writer died, in order; in the last one it did not."""
    base = tmp_path_factory.mktemp("replaced")
    return [base / str(step) for step in range(killed_everywhere(base, "write") + 1)]


def found(directory: Path) -> tuple[int, int, dict[str, bytes], bool | None]:
    """Time of birth, time of use, tool map and the checksum's verdict of the file in `directory`."""
    with open_cache_file(directory / NAME) as reader:
        verdict = reader.verify_checksum()
        header = reader.file.header
        return header.created_at, header.last_used, reader.tool_map(), verdict


NOW = 1_700_000_000
WHOLE = TEXT_AT + len(TEXT) + len(OTHER_PAYLOAD)


def test_a_file_that_is_replaced_is_the_old_one_or_the_new_one(replaced: list[Path]) -> None:
    assert len(replaced) > 40
    seen = []
    for directory in replaced:
        created, _, blocks, verdict = found(directory)
        assert blocks == ({"call_a": b"<one>"} if created == NOW else {})
        # Never a checksum of the one over the other; for a moment there is none.
        assert verdict is not False
        seen.append((created, verdict))
    order = [(NOW, True), (NOW, None), (NOW + 1, None), (NOW + 1, True)]
    assert [state for number, state in enumerate(seen) if state not in seen[:number]] == order
    assert sorted(seen, key=order.index) == seen


def test_what_a_killed_process_leaves_is_no_cache_file(replaced: list[Path]) -> None:
    leftovers = [path for directory in replaced for path in directory.iterdir() if ".tmp." in path.name]
    assert {path.name.rsplit(".", 1)[0] for path in leftovers} == {f"{NAME}.tmp", f"{NAME}.sum.tmp"}
    assert not any(is_cache_name(path.name) for path in leftovers)
    # The name alone keeps them out: some lacked nothing else.
    sizes = [path.stat().st_size for path in leftovers if path.name.startswith(f"{NAME}.tmp")]
    assert min(sizes) < WHOLE == max(sizes)


@pytest.mark.parametrize("what", ["touch", "trailer"])
def test_while_a_file_is_changed_in_place_only_mappings_can_be_lost(tmp_path: Path, what: str) -> None:
    steps = killed_everywhere(tmp_path, what)
    assert steps >= 5
    maps: list[dict[str, bytes]] = [{"call_a": b"<one>"}]
    maps += [{}, {"call_b": b"<two>"}] if what == "trailer" else []
    for step in range(steps + 1):
        created, used, blocks, verdict = found(tmp_path / str(step))
        assert (created, verdict) == (NOW, True)
        assert used in (NOW, NOW + 1)
        assert blocks in maps
    assert (used, blocks) == (NOW + 1, maps[-1])
