"""MLX compiles each kernel once: to a name belongs one text, with the simulator's parameters."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.ksim.signature import kernel_parameters, mlx_source, simulated_parameters
from tests.support.traced_models import EACH_AND_PROOF, EVERYDAY, MODELS, PROOF, launches
from tests.support.traced_steps import Launch

# Metal binds so many buffers to a launch.
MOST_BUFFERS = 31


def different(found: list[Launch]) -> list[Launch]:
    """One launch for each text and signature."""
    return list({(launch.name, launch.text, launch.signature): launch for launch in found}.values())


def ambiguous(found: list[Launch]) -> set[str]:
    """Names that stand for several texts: MLX would compile such a kernel again at every call."""
    texts: dict[str, set[object]] = {}
    for launch in found:
        texts.setdefault(launch.name, set()).add((launch.text, launch.signature))
    return {name for name, several in texts.items() if len(several) > 1}


@pytest.mark.parametrize("name", EACH_AND_PROOF)
def test_the_simulator_compiles_the_same_parameters(name: str) -> None:
    for launch in different(launches(name)):
        call = launch.small_call()
        assert simulated_parameters(call) == kernel_parameters(mlx_source(call)), launch.name


@pytest.mark.parametrize("name", EACH_AND_PROOF)
def test_launches_bind_few_buffers(name: str) -> None:
    for launch in different(launches(name)):
        parameters = kernel_parameters(mlx_source(launch.small_call()))
        buffers = [parameter for parameter in parameters if "*" in parameter or "&" in parameter]
        assert len(buffers) <= MOST_BUFFERS, launch.name


def test_a_name_stands_for_one_text() -> None:
    assert ambiguous([launch for name in [PROOF, *EVERYDAY] for launch in launches(name)]) == set()


@pytest.mark.long
def test_a_name_stands_for_one_text_in_all_models() -> None:
    assert ambiguous([launch for name in [PROOF, *MODELS] for launch in launches(name)]) == set()


def test_a_name_for_several_texts_is_seen() -> None:
    """Also where one launch passes an input in constant memory and another in device memory."""
    launch = next(launch for launch in launches("tiny") if launch.kernel == "hyper_mix")
    (_, dtype), *others = launch.inputs
    for other in (
        replace(launch, text=("", "")),
        replace(launch, inputs=(((7,), dtype), *others)),
        replace(launch, inputs=(((8,), dtype), *others)),
    ):
        assert ambiguous([launch, other]) == {launch.name}
    assert ambiguous([launch, launch]) == set()


@pytest.mark.parametrize(("elements", "constant"), [(7, True), (8, False)])
def test_small_inputs_are_in_constant_memory(elements: int, constant: bool) -> None:
    """As MLX has it, which the signature of a launch relies on."""
    launch = next(launch for launch in launches("tiny") if launch.kernel == "hyper_mix")
    (_, dtype), *others = launch.inputs
    cut = replace(launch, inputs=(((elements,), dtype), *others))
    first = kernel_parameters(mlx_source(cut.small_call()))[0]
    assert cut.signature[0][0] is constant
    assert first.startswith("const constant" if constant else "const device")
