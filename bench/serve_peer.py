"""Run by an interpreter that has mlx-lm: makes a model of one tiny layer, and measures it without a server.

`python serve_peer.py FOLDER TOKENS` prints milliseconds to the first token and tokens a second, as JSON.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import mlx.core as mx
import mlx_lm
from tokenizers import Tokenizer, decoders, models

_WIDTH = 64
_CHARACTERS = [chr(code) for code in range(32, 127)]


def make(folder: Path) -> None:
    """A Llama of random weights whose tokens are the printable ASCII characters."""
    folder.mkdir()
    words = [*_CHARACTERS, "<unk>", "<eos>"]
    tokenizer = Tokenizer(
        models.BPE({word: number for number, word in enumerate(words)}, [], unk_token="<unk>")
    )
    tokenizer.decoder = decoders.Fuse()
    tokenizer.add_special_tokens(["<eos>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    template = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<eos>", "chat_template": template}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    config = {
        "model_type": "llama",
        "hidden_size": _WIDTH,
        "num_hidden_layers": 1,
        "intermediate_size": _WIDTH,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "rms_norm_eps": 1e-5,
        "vocab_size": len(words),
        "tie_word_embeddings": True,
        "eos_token_id": len(words) - 1,
    }
    (folder / "config.json").write_text(json.dumps(config))
    mx.random.seed(1)
    square = [f"self_attn.{name}_proj" for name in "qkvo"]
    square += [f"mlp.{name}_proj" for name in ("gate", "up", "down")]
    weights = {f"model.layers.0.{name}.weight": mx.random.normal((_WIDTH, _WIDTH)) * 0.1 for name in square}
    for name in ("layers.0.input_layernorm", "layers.0.post_attention_layernorm", "norm"):
        weights[f"model.{name}.weight"] = mx.ones(_WIDTH)
    # The end mark and the unknown character never win.
    table = mx.random.normal((len(words), _WIDTH))
    table[len(_CHARACTERS) :] = 0
    weights["model.embed_tokens.weight"] = table
    mx.save_safetensors(str(folder / "model.safetensors"), weights)


def measure(folder: Path, tokens: int) -> tuple[float, float]:
    """Milliseconds to the first token and tokens a second: the best of twelve."""
    model, tokenizer = mlx_lm.load(str(folder))
    prompt = tokenizer.encode("Tell me about the harbour. " * 8)
    firsts, rates = [], []
    for _ in range(12):
        began = time.perf_counter()
        steps = mlx_lm.stream_generate(model, tokenizer, prompt, max_tokens=tokens)
        next(steps)
        first = time.perf_counter()
        count = sum(1 for _ in steps)
        rates.append(count / (time.perf_counter() - first))
        firsts.append(1000 * (first - began))
    return min(firsts), max(rates)


if __name__ == "__main__":
    make(Path(sys.argv[1]))
    print(json.dumps(measure(Path(sys.argv[1]), int(sys.argv[2]))))
