"""Which shapes other than the published ones are accepted: small ones, for tests and the embedded model.

The rules keep every tensor a whole number of quantisation blocks and every kernel's assumptions true.
"""

from __future__ import annotations

from collections.abc import Mapping

WIDEST_EMBEDDING = 1024
MOST_LAYERS = 256
RATIOS = (0, 4, 128)


def admissible_faults(numbers: Mapping[str, int], ratios: tuple[int, ...]) -> list[str]:
    """Every rule that these numbers (by metadata key, without prefix) break, as `key must be ...`."""
    faults = [
        f"{key} must be at least 1"
        for key, number in numbers.items()
        if number < 1 and key != "hash_layer_count"
    ]
    if faults:  # the other rules divide by these
        return faults

    def rule(holds: bool, text: str) -> None:
        if not holds:
            faults.append(text)

    def multiple(value: int, of: int, what: str) -> None:
        rule(value % of == 0, f"{what} must be a multiple of {of}, not {value}")

    def exactly(key: str, value: int) -> None:
        rule(numbers[key] == value, f"{key} must be {value}, not {numbers[key]}")

    width, heads, groups = (
        numbers[key] for key in ("embedding_length", "attention.head_count", "attention.output_group_count")
    )
    head_dim, rotary = numbers["attention.key_length"], numbers["rope.dimension_count"]
    rule(width <= WIDEST_EMBEDDING, f"embedding_length must be at most {WIDEST_EMBEDDING}, not {width}")
    multiple(width, 256, "embedding_length")
    multiple(numbers["expert_feed_forward_length"], 256, "expert_feed_forward_length")
    rule(rotary < head_dim, f"rope.dimension_count must be less than attention.key_length, not {rotary}")
    multiple(rotary, 2, "rope.dimension_count")
    multiple(head_dim - rotary, 64, "attention.key_length minus rope.dimension_count")
    exactly("attention.value_length", head_dim)
    exactly("attention.head_count_kv", 1)
    exactly("attention.indexer.key_length", 128)
    exactly("expert_shared_count", 1)
    rule(heads % groups == 0, f"attention.head_count {heads} must divide by the {groups} output groups")
    multiple(numbers["attention.q_lora_rank"], 32, "attention.q_lora_rank")
    multiple(groups * numbers["attention.output_lora_rank"], 32, "output groups times output rank")
    multiple(heads // groups * head_dim, 32, "the width of an output group")
    used, experts = numbers["expert_used_count"], numbers["expert_count"]
    rule(used <= experts, f"expert_used_count {used} must be at most expert_count {experts}")
    layers, hashed = numbers["block_count"], numbers["hash_layer_count"]
    rule(layers <= MOST_LAYERS, f"block_count must be at most {MOST_LAYERS}, not {layers}")
    rule(hashed <= layers, f"hash_layer_count {hashed} must be at most block_count {layers}")
    strange = sorted(set(ratios) - set(RATIOS))
    rule(not strange, f"attention.compress_ratios may hold 0, 4 and 128, not {strange[:4]}")
    return faults


def imitates_pro(ratios: tuple[int, ...], pro_weight_scale: bool) -> bool:
    """Whether a test shape stands for PRO in cache files: every layer compresses (no window-only layer) and
    expert weights are scaled as in PRO."""
    return pro_weight_scale and 0 not in ratios
