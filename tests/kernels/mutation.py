"""Breaks kernels by rule and tells whether their tests notice: python -m tests.kernels.mutation [KERNEL ...].

A name ("attend" or "attend.prefill") stands for all texts that begin with it. Each result is written to
tests/kernels/mutants; a survivor needs a proof of equivalence there, by hand, or a sharper case.
"""

from __future__ import annotations

from tests.kernels.mutation_targets import MetalTarget, targets
from tests.support.mutation.run import main

if __name__ == "__main__":
    raise SystemExit(main(targets(), MetalTarget.program, __doc__, None))
