"""How long it takes to open a model file with a vocabulary of the real size: our reader and `gguf`'s.

The file is made for the purpose: the real number of keys, tensors, tokens and merges, and a hole instead of
the weights. Run it with `python bench/gguf_open.py [--runs N] [--skip-peer]`; it exits 1 when opening takes
a second or more.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from shared.gguf.reader import GgufFile
from shared.gguf.types import TensorType, ValueType
from shared.gguf.writer import ArrayValue, MetadataEntry, TensorData, encode_header
from shared.model.known_shapes import FLASH, FLOAT_KEYS, INTEGER_KEYS, PREFIX
from shared.model.open import open_model
from shared.model.tensors import EXPERT_TYPES, tensor_table

MERGES = 127_741
LIMIT_SECONDS = 1.0


def vocabulary() -> tuple[list[str], list[str]]:
    """Made-up tokens and merges with about the lengths of real ones."""
    source = random.Random(4)
    letters = "abcdefghijklmnopqrstuvwxyzĠéü中文字"

    def word(longest: int) -> str:
        return "".join(source.choices(letters, k=source.randint(1, longest)))

    return [word(12) for _ in range(FLASH.vocabulary_size)], [f"{word(6)} {word(6)}" for _ in range(MERGES)]


def write_model(path: Path) -> None:
    tokens, merges = vocabulary()
    metadata: list[MetadataEntry] = [
        ("general.architecture", ValueType.STRING, "deepseek4"),
        ("general.name", ValueType.STRING, "A file of holes"),
        *[(PREFIX + entry.key, ValueType.UINT32, entry.of(FLASH)) for entry in INTEGER_KEYS],
        *[(PREFIX + entry.key, ValueType.FLOAT32, getattr(FLASH, entry.field)) for entry in FLOAT_KEYS],
        (PREFIX + "expert_weights_norm", ValueType.BOOL, True),
        (
            PREFIX + "attention.compress_ratios",
            ValueType.ARRAY,
            ArrayValue(ValueType.INT32, FLASH.compress_ratios),
        ),
        (
            PREFIX + "swiglu_clamp_exp",
            ValueType.ARRAY,
            ArrayValue(ValueType.FLOAT32, [FLASH.swiglu_clamp] * FLASH.layer_count),
        ),
        ("tokenizer.ggml.model", ValueType.STRING, "gpt2"),
        ("tokenizer.ggml.pre", ValueType.STRING, "joyai-llm"),
        ("tokenizer.ggml.tokens", ValueType.ARRAY, ArrayValue(ValueType.STRING, tokens)),
        ("tokenizer.ggml.token_type", ValueType.ARRAY, ArrayValue(ValueType.INT32, [1] * len(tokens))),
        ("tokenizer.ggml.merges", ValueType.ARRAY, ArrayValue(ValueType.STRING, merges)),
    ]
    tensors = [
        TensorData(
            spec.name, TensorType.IQ2_XXS if spec.types == EXPERT_TYPES else spec.types[0], spec.dims, b""
        )
        for spec in tensor_table(FLASH)
    ]
    header = encode_header(metadata, tensors)
    with path.open("wb") as file:
        file.write(header)
        file.truncate(len(header) + sum(-(-tensor.nbytes // 32) * 32 for tensor in tensors))
    print(f"file     {path.stat().st_size / 1e9:.1f} GB (a hole), header {len(header) / 1e6:.2f} MB,")
    print(f"         {len(tensors)} tensors, {len(tokens)} tokens, {len(merges)} merges")


def seconds(action: Callable[[], object], runs: int) -> float:
    """Median time of `runs` runs."""
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def read_header(path: Path) -> None:
    GgufFile.open(path).close()


def read_vocabulary(path: Path) -> None:
    with GgufFile.open(path) as file:
        for key in ("tokenizer.ggml.tokens", "tokenizer.ggml.merges"):
            list(file.metadata[key])  # type: ignore[arg-type]


def open_and_check(path: Path) -> None:
    open_model(path).close()


def read_with_peer(path: Path) -> None:
    from gguf import GGUFReader

    GGUFReader(path)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--runs", type=int, default=5, help="runs of our reader; the median counts")
    parser.add_argument("--skip-peer", action="store_true", help="leave the slow `gguf` reader out")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.gguf"
        write_model(path)
        ours = seconds(lambda: read_header(path), options.runs)
        print(f"ours     {ours:8.3f} s  header and directory read, bounds checked")
        texts = seconds(lambda: read_vocabulary(path), options.runs)
        print(f"         {texts:8.3f} s  the same, and all tokens and merges as text")
        checked = seconds(lambda: open_and_check(path), options.runs)
        print(f"         {checked:8.3f} s  the same, and shape and all tensors checked as a model's")
        if not options.skip_peer:
            peer = seconds(lambda: read_with_peer(path), 1)
            print(f"gguf     {peer:8.3f} s  GGUFReader (one run)")
            print(f"ratio    {peer / ours:8.1f} times as long")
    good = checked < LIMIT_SECONDS
    print(
        f"verdict  {'PASS' if good else 'FAIL'}: opening takes {checked:.3f} s, limit {LIMIT_SECONDS:.0f} s"
    )
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
