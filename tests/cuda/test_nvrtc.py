"""NVIDIA's compilers take every kernel, for every GPU generation, without a warning."""

from __future__ import annotations

import pytest

from ds4cuda.kernels.kernel import OPTIONS
from shared.model.known_shapes import FLASH, PRO
from shared.model.shape import ModelShape
from tests.cuda.nvrtc import ARCHITECTURES, Compiler, Refused, library_path
from tests.cuda.texts import kernel_texts
from tests.support.shapes import toy_shape

MAJORS = (12, 13)
SHAPES = {"flash": FLASH, "pro": PRO, "toy": toy_shape(embedding_width=256, expert_width=256)}


def compiler(major: int) -> Compiler:
    if library_path(major) is None:
        pytest.skip(f"NVRTC {major} is not installed (its wheels are for Linux)")
    return Compiler.of(major)


def check(major: int, architecture: str, shape: ModelShape, rounds: tuple[bool, ...]) -> None:
    compiles = compiler(major)
    for text, (name, options) in kernel_texts(shape, rounds).items():
        assert compiles.cubin(text, f"{name}.cu", architecture, options)


def check_one_of_each(major: int, architecture: str) -> None:
    compiles = compiler(major)
    texts = kernel_texts(FLASH, (True,)).items()
    for name, (text, options) in {name: (text, options) for text, (name, options) in texts}.items():
        assert compiles.cubin(text, f"{name}.cu", architecture, options)


@pytest.mark.parametrize(("major", "architecture"), [(12, "sm_80"), (13, "sm_120")])
def test_one_of_each_kernel_compiles(major: int, architecture: str) -> None:
    """The oldest generation with the older compiler, the newest with the newer; all with the long tests."""
    check_one_of_each(major, architecture)


@pytest.mark.long
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_kernel_compiles(architecture: str) -> None:
    for major in MAJORS:
        check_one_of_each(major, architecture)


@pytest.mark.long
@pytest.mark.parametrize("shape", SHAPES)
def test_kernels_of_every_shape_compile(shape: str) -> None:
    """For every block type, in both modes; what differs between generations depends on neither."""
    check(13, "sm_90", SHAPES[shape], (True, False))


@pytest.mark.parametrize("major", MAJORS)
@pytest.mark.parametrize(
    "fault", ["undefined_name()", "unsigned n = -1; if (n < 0) { *x = 1.0f; }", 'asm("" :: "r"(*x))']
)
def test_a_faulty_kernel_is_refused(major: int, fault: str) -> None:
    """An undefined name, a mere warning, an operand of the wrong kind."""
    text = f'extern "C" __global__ void faulty(float* x) {{ {fault}; }}'
    with pytest.raises(Refused, match="faulty"):
        compiler(major).cubin(text, "faulty.cu", "sm_80", OPTIONS)


def test_texts_hold_their_headers() -> None:
    """What a compiled kernel is kept under does not see included files."""
    assert not [name for text, (name, _) in kernel_texts(FLASH).items() if "#include" in text]
