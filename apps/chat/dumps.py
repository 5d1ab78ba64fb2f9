"""`--dump-tokens`, `--dump-logits` and `--dump-logprobs`: what a prompt becomes, in comparable text.

Byte-exact layouts (spec: apps §1.5). Knows sessions and tokenizers; nothing of the terminal.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from apps.chat import token_json
from shared.sampling import GREEDY, choose, top_logprobs
from shared.session import Engine, Session
from shared.text.tokenizer import Tokenizer


def token_lines(tokens: Sequence[int], tokenizer: Tokenizer) -> Iterator[str]:
    """The ids in brackets, then each id with its vocabulary string."""
    yield f"[{', '.join(map(str, tokens))}]"
    for token in tokens:
        yield f"{token:6d}  {tokenizer.piece(token)}"


def logits_json(engine: Engine, session: Session, model: str) -> Iterator[str]:
    """The lines of the logits after the session's last token. `model` is the file's name."""
    logits = session.logits()
    best = choose(logits, GREEDY)
    yield "{"
    yield '  "source":"ds4",'
    yield f'  "model":{token_json.string(model)},'
    yield f'  "backend":{token_json.string(engine.backend)},'
    yield f'  "quant_bits":{engine.quant_bits},'
    yield f'  "prompt_tokens":{session.position},'
    yield f'  "ctx":{session.context},'
    yield f'  "vocab":{len(logits)},'
    yield f'  "argmax_token":{token_json.token(engine.tokenizer, best)},'
    yield f'  "argmax_logit":{token_json.number(logits[best])},'
    yield '  "logits":['
    yield from (f"    {row}" for row in token_json.logits(logits))
    yield "  ]"
    yield "}"


def logprobs_json(engine: Engine, session: Session, *, steps: int, top_k: int) -> Iterator[str]:
    """The lines of a greedy continuation of at most `steps` tokens with the `top_k` best of each step.
    A step that chooses the end token is recorded and is the last."""
    tokenizer = engine.tokenizer
    yield "{"
    yield '  "source":"ds4",'
    yield f'  "prompt_tokens":{session.position},'
    yield f'  "ctx":{session.context},'
    yield f'  "top_k":{top_k},'
    yield '  "steps":['
    step, ended = 0, False
    while not ended:
        logits = session.logits()
        selected = choose(logits, GREEDY)
        step += 1
        ended = selected == tokenizer.specials.eos or step >= steps or session.position >= session.context
        candidates = ",".join(
            f'{{"token":{token_json.token(tokenizer, candidate.token)},'
            f'"logit":{token_json.number(candidate.logit)},"logprob":{token_json.number(candidate.logprob)}}}'
            for candidate in top_logprobs(logits, top_k)
        )
        yield (
            f'    {{"step":{step - 1},"selected":{token_json.token(tokenizer, selected)},'
            f'"top_logprobs":[{candidates}]}}{"" if ended else ","}'
        )
        if not ended:
            session.submit(selected)
    yield "  ]"
    yield "}"


def write_lines(path: Path, lines: Iterator[str]) -> None:
    """Write `lines` to `path` as a whole: a run that fails leaves no half dump behind. A link, pipe or
    device is written to, never replaced."""
    if path.is_symlink() or (path.exists() and not path.is_file()):
        with path.open("w", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in lines)
        return
    partial = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with partial.open("w", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in lines)
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
