from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from shared.errors import ModelFileError
from shared.gguf.reader import GgufFile
from shared.model.open import open_model
from shared.model.reference_engine import load
from shared.model.routing_table import hash_experts
from tests.support.golden import tiny_q2


def test_reads_a_row_of_expert_ids_per_token() -> None:
    with open_model(tiny_q2()) as model:
        table = hash_experts(model.gguf, model.shape, 1)
        raw = model.gguf.data("blk.1.ffn_gate_tid2eid.weight").tobytes()
        assert table.shape == (1280, 3)
        assert table[7].tolist() == np.frombuffer(raw[7 * 12 : 8 * 12], "<i4").tolist()


@pytest.mark.parametrize("bad", [-1, 8, 2**31 - 1])
def test_an_id_that_is_no_expert_is_a_damaged_file(bad: int, tmp_path: Path) -> None:
    content = bytearray(tiny_q2().read_bytes())
    with GgufFile.open(tiny_q2()) as file:
        at = file.tensors["blk.2.ffn_gate_tid2eid.weight"].offset
    content[at + 400 : at + 404] = bad.to_bytes(4, "little", signed=True)
    path = tmp_path / "damaged.gguf"
    path.write_bytes(content)
    with pytest.raises(ModelFileError, match=r"damaged\.gguf is damaged: blk\.2\.ffn_gate_tid2eid"):
        load(path)
