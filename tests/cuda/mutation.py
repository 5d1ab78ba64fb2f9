"""Breaks CUDA kernels by rule and tells whether tests notice: python -m tests.cuda.mutation [KERNEL ...].

A name ("attend" or "attend.combine") stands for all texts that begin with it. Each result is written to
tests/cuda/mutants; a survivor needs a proof of equivalence there, by hand, or a sharper case.
"""

from __future__ import annotations

from tests.cuda.mutation_targets import CudaTarget, targets
from tests.support.mutation.run import main

if __name__ == "__main__":
    raise SystemExit(main(targets(), CudaTarget.program, __doc__, None))
