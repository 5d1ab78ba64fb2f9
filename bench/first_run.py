"""Everything that the first run on a Mac can tell, in one JSON file: docs/first-run-on-a-mac.md.

Run it with `python bench/first_run.py [--quick] [-o FILE]` from a checkout whose packages are installed. Each
step is a process of its own with a time limit, so that one that crashes or hangs costs only itself. Where
there is no Metal, what needs it is left out and says so.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

ROOT = Path(__file__).resolve().parents[1]
MODEL = ROOT / "apps/models/embedded.gguf"
PROMPT = ROOT / "bench/prompts/harbour.txt"
SWITCH = "DS4_KERNELS_OFF"
NO_METAL = "there is no Metal here"
TAIL = 4000  # characters kept of what a step printed
TESTS = (
    "tests/parity/test_mlx_logits.py",
    "tests/parity/test_mlx_batching.py",
    "tests/parity/test_mlx_restore.py",
    "tests/unit/ds4mlx",
)

Status = Literal["ok", "failed", "timed out", "left out"]


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that was tried. `result` is the JSON that it printed, else None."""

    name: str
    status: Status
    seconds: float
    exit_code: int | None
    result: Any
    output: str  # the end of what it printed besides


class FirstRun:
    """The steps in order, each run when it is asked for. `quick` makes them small and leaves tests out."""

    def __init__(self, folder: Path, *, quick: bool) -> None:
        self._folder = folder
        self._quick = quick
        self._python = sys.executable
        self._hidden = hidden_paths(folder)

    def steps(self) -> Iterator[Step]:
        device = self._run("device", [*self._checks("device")], 120)
        yield device
        metal = bool(device.result and device.result["metal"])
        model = ("-m", str(MODEL))
        yield self._run("doctor", self._ds4("doctor", "--strict", "--json", *model), 300)
        yield from self._kernels(metal)
        tokens = ("64", "8") if self._quick else ("600", "128")
        bench = self._ds4(
            *("bench", *model, "--backend", "mlx", "--json", "--chat-prompt-file", str(PROMPT)),
            *("--ctx-start", tokens[0], "--ctx-max", tokens[0], "--gen-tokens", tokens[1]),
        )
        yield self._run("bench", bench, 600)
        name = "bench without kernels"
        yield self._run(name, bench, 600, off="all") if metal else left_out(name)
        yield from self._answers(model, metal)
        if not self._quick:
            yield self._run("tests", ["-m", "pytest", "-q", "-p", "no:cacheprovider", *TESTS], 1200)

    def _kernels(self, metal: bool) -> Iterator[Step]:
        times = self._ds4("bench", "--kernels", "--json", "--ctx-max", "4096", "--prefill-chunk", "512")
        names = [f"examples {name}" for name in operations()]
        if not self._quick:
            names += [f"contract {name}" for name in contract_modules()]
        for name in names:
            yield self._run(name, self._checks(*name.split()), 300) if metal else left_out(name)
        yield self._run("kernel times", times, 900) if metal else left_out("kernel times")

    def _answers(self, model: tuple[str, ...], metal: bool) -> Iterator[Step]:
        """A greedy answer as it comes, one by plain operations, and how far they agree: not judged."""
        prompt = ("-p", "How do I start the server?") if self._quick else ("--prompt-file", str(PROMPT))
        count = "8" if self._quick else "64"
        found = []
        for name, off in (("answer", ""), ("answer without kernels", "all")):
            if off and not metal:
                yield left_out(name)
                continue
            file = self._folder / f"{name.replace(' ', '-')}.json"
            options = (*model, "--backend", "mlx", *prompt, "--nothink", "-n", count)
            yield self._run(name, self._ds4("chat", *options, "--dump-logprobs", str(file)), 300, off=off)
            if file.is_file():
                found.append(json.loads(file.read_text(encoding="utf-8")))
        if len(found) == 2:
            yield Step("answers compared", "ok", 0.0, None, agreement(*found), "")

    def _ds4(self, *arguments: str) -> list[str]:
        return ["-c", "import sys; from apps.cli import main; sys.exit(main())", *arguments]

    def _checks(self, *arguments: str) -> list[str]:
        return [str(ROOT / "bench/kernel_checks.py"), *arguments]

    def _run(self, name: str, command: Sequence[str], limit: int, off: str = "") -> Step:
        # Options come from here alone: none of the user's, which could name files of theirs.
        environment = {key: value for key, value in os.environ.items() if not key.startswith("DS4_")}
        started = time.perf_counter()
        try:
            done = subprocess.run(
                [self._python, *command],
                cwd=ROOT,
                env=environment | ({SWITCH: off} if off else {}),
                capture_output=True,
                text=True,
                errors="replace",
                timeout=limit,
                stdin=subprocess.DEVNULL,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return Step(name, "timed out", float(limit), None, None, "")
        seconds = round(time.perf_counter() - started, 2)
        result = printed_json(done.stdout)
        output = done.stderr if result is not None else done.stdout + done.stderr
        failed = done.returncode != 0 or any_failed(result)
        shown = without_paths(output, self._hidden)[-TAIL:]
        return Step(name, "failed" if failed else "ok", seconds, done.returncode, self._clean(result), shown)

    def _clean(self, result: Any) -> Any:
        return json.loads(without_paths(json.dumps(result), self._hidden))


def left_out(name: str) -> Step:
    return Step(name, "left out", 0.0, None, None, NO_METAL)


def operations() -> list[str]:
    from ds4mlx.kernels.registry import OPERATIONS

    return list(OPERATIONS)


def contract_modules() -> list[str]:
    """Test modules of kernels that have a table of checks."""
    return sorted(
        path.stem
        for path in (ROOT / "tests/kernels").glob("test_*.py")
        if re.search(r"^CASES\b", path.read_text(encoding="utf-8"), re.MULTILINE)
    )


def printed_json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def any_failed(result: Any) -> bool:
    """Whether one of a step's checks failed; steps without checks have none."""
    return isinstance(result, list) and any(not entry.get("ok", True) for entry in result)


def agreement(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Of two recordings of greedy continuations: how many tokens are the same from the start on, and the
    largest difference of logits until then, in parts of the largest logit."""
    same, apart, largest = 0, 0.0, 0.0
    for left, right in zip(one["steps"], other["steps"], strict=False):
        theirs = {entry["token"]["id"]: entry["logit"] for entry in right["top_logprobs"]}
        for entry in left["top_logprobs"]:
            largest = max(largest, abs(entry["logit"]))
            if entry["token"]["id"] in theirs:
                apart = max(apart, abs(entry["logit"] - theirs[entry["token"]["id"]]))
        if left["selected"]["id"] != right["selected"]["id"]:
            break
        same += 1
    return {
        "tokens": [len(one["steps"]), len(other["steps"])],
        "same_tokens": same,
        "largest_difference": apart / largest if largest else apart,
    }


def hidden_paths(folder: Path) -> list[tuple[str, str]]:
    """Folders of this machine and what stands for them, the longest first."""
    places = {
        ROOT: "CHECKOUT",
        folder: "WORK",
        Path(sys.prefix): "PYTHON",
        Path(tempfile.gettempdir()): "TEMP",
        Path.home(): "HOME",
    }
    both = {str(form): name for path, name in places.items() for form in (path, path.resolve())}
    return sorted(
        ((path, name) for path, name in both.items() if path != "/"), key=lambda pair: -len(pair[0])
    )


def without_paths(text: str, hidden: Sequence[tuple[str, str]]) -> str:
    """`text` without folders of this machine, and without the name of any other user's."""
    for path, name in hidden:
        text = text.replace(path, name)
    return re.sub(r"/(?:Users|home)/[^/\s\"']+", "HOME", text)


def commit() -> str:
    done = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else "unknown"


def machine() -> dict[str, Any]:
    """What the numbers depend on. No name of the machine or of its user."""
    return {
        "system": platform.system(),
        "release": platform.release(),
        "macos": platform.mac_ver()[0],
        "processor": platform.machine(),
        "python": platform.python_version(),
        "commit": commit(),
    }


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small steps, no tests")
    parser.add_argument("-o", "--output", type=Path, default=Path("ds4-first-run.json"), metavar="FILE")
    chosen = parser.parse_args(arguments)
    sys.path.insert(0, str(ROOT))
    from apps.output_file import check_writable
    from shared.errors import UsageError

    try:
        check_writable(chosen.output)
    except UsageError as reason:
        parser.error(str(reason))
    steps: list[Step] = []
    report = {"format": 1, "quick": chosen.quick, "machine": machine()}
    with tempfile.TemporaryDirectory() as folder:
        for step in FirstRun(Path(folder), quick=chosen.quick).steps():
            steps.append(step)
            print(f"{step.name:<36} {step.status:<10} {step.seconds:7.1f} s", flush=True)
            # Written after each step: what is there stays there.
            text = json.dumps(report | {"steps": [asdict(done) for done in steps]}, indent=1)
            chosen.output.write_text(text + "\n", encoding="utf-8")
    failed = [step.name for step in steps if step.status in ("failed", "timed out")]
    print(f"{len(steps)} steps, {len(failed)} not ok{': ' + ', '.join(failed) if failed else ''}")
    print(f"written: {chosen.output}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
