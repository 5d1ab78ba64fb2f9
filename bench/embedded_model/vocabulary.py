"""The byte-level BPE of the embedded model, learnt from its own training text.

Fixed first merges make every syllable of a name and every number from 10 to 99 one token; the rest are the
most frequent pairs inside the words of the training text. Names are too rare to be counted.
"""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from bench.embedded_model.conversation import Mixture, conversation
from bench.embedded_model.names import SYLLABLES
from bench.embedded_model.rendered import segments_of
from bench.embedded_model.split import Split
from shared.text import marks
from shared.text.byte_alphabet import ALPHABET, spell
from shared.text.segments import join
from shared.text.tokenizer import Tokenizer

SIZE = 2048
FILE = Path(__file__).with_name("vocabulary.json")
# The order of the published vocabularies: begin, end, padding, then the rest.
SPECIALS = (
    marks.BOS,
    marks.EOS,
    marks.PAD,
    *(m for m in marks.ALL if m not in (marks.BOS, marks.EOS, marks.PAD)),
)
_LEAST_CONVERSATIONS = 12  # a word in fewer conversations is a name, or noise
_SAMPLES = 2500
_SEED = 20260
_MARKS = re.compile("|".join(map(re.escape, marks.REQUIRED)))


def fixed_merges() -> list[tuple[str, str]]:
    """Merges that stand before all learnt ones."""
    merges = []
    for syllable in SYLLABLES:
        merges += [(syllable[0], syllable[1]), (syllable[0].upper(), syllable[1])]
    blank = spell(b" ")
    merges += [(blank, syllable.capitalize()) for syllable in SYLLABLES]
    merges += [(tens, ones) for tens in "123456789" for ones in "0123456789"]
    return merges


def learn(words: Counter[str], size: int) -> tuple[list[str], list[str]]:
    """Tokens (index = id) and merges of a vocabulary of `size`, from counted words in the byte alphabet."""
    merges = fixed_merges()
    tokens = [*SPECIALS, *ALPHABET, *(left + right for left, right in merges)]
    pieces = {word: _merged(list(word), merges) for word in words}
    known = set(tokens)
    while len(tokens) < size:
        pairs: Counter[tuple[str, str]] = Counter()
        for word, count in words.items():
            for pair in zip(pieces[word], pieces[word][1:], strict=False):
                pairs[pair] += count
        if not pairs:
            raise ValueError(f"the text yields only {len(tokens)} tokens")
        best = max(pairs, key=lambda pair: (pairs[pair], pair))
        merges.append(best)
        joined = "".join(best)
        if joined not in known:
            known.add(joined)
            tokens.append(joined)
        for word, parts in pieces.items():
            if joined in word:
                pieces[word] = _merged(parts, [best])
    return tokens, [f"{left} {right}" for left, right in merges]


def words_of_training(samples: int = _SAMPLES) -> Counter[str]:
    """Pre-tokenised words of the training text with the number of conversations that hold them."""
    from tokenizers import Regex, pre_tokenizers

    from shared.text import tokenizer as product

    splitter = pre_tokenizers.Sequence(
        [
            *(pre_tokenizers.Split(Regex(rule), "isolated") for rule in product._SPLITS),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    source, mixture = random.Random(_SEED), Mixture(3, 1, 2, 3)
    totals: Counter[str] = Counter()
    held_by: Counter[str] = Counter()
    for _ in range(samples):
        sample = conversation(source, Split.TRAIN, mixture, source.choice((256, 1024)))
        text = join(segments_of(sample)).decode("utf-8")
        found: Counter[str] = Counter()
        for part in _MARKS.split(text):
            found.update(piece for piece, _ in splitter.pre_tokenize_str(part))
        totals.update(found)
        held_by.update(found.keys())
    return Counter({word: totals[word] for word in totals if held_by[word] >= _LEAST_CONVERSATIONS})


def _merged(parts: list[str], merges: Iterable[tuple[str, str]]) -> list[str]:
    """`parts` with the merges carried out in their order."""
    for left, right in merges:
        if left not in parts:
            continue
        result: list[str] = []
        for part in parts:
            if result and result[-1] == left and part == right:
                result[-1] = left + right
            else:
                result.append(part)
        parts = result
    return parts


def write(path: Path = FILE) -> None:
    """Learns the vocabulary and writes it."""
    tokens, merges = learn(words_of_training(), SIZE)
    path.write_text(json.dumps({"tokens": tokens, "merges": merges}, ensure_ascii=False, indent=0) + "\n")


def read(path: Path = FILE) -> tuple[list[str], list[str]]:
    """Tokens and merges as they go into a model file."""
    held = json.loads(path.read_text(encoding="utf-8"))
    return held["tokens"], held["merges"]


def tokenizer(path: Path = FILE) -> Tokenizer:
    """The product's tokenizer over this vocabulary."""
    tokens, merges = read(path)
    return Tokenizer.from_vocabulary(tokens, merges)


if __name__ == "__main__":
    write()
