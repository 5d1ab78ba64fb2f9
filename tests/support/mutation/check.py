"""Whether a broken text passes the cases of the kernels that it is part of.

Quick checks come first, since most broken texts fail them; what passes those, and is other machine code, must
pass full checks with two orders of threads, as the kernel tests do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.ksim import KernelError, build
from tests.ksim.mutation_code import machine_code
from tests.support.mutation.target import Target

QUICK, FULL = "quick", "full"
# (check, seed), in the words of tests.ksim.
_LEVELS = {QUICK: (("fast", 0),), FULL: (("full", 1), ("full", 2))}

Request = tuple[str, str]


def used_cases(target: Target) -> list[str]:
    """Names of the cases in which a kernel with the target's text is made; all of them pass all checks."""
    found = []
    for name, case in target.cases().items():
        uses: list[str] = []
        quick, *others = (setting for level in _LEVELS.values() for setting in level)
        case(target.subject(*quick, target.text, uses))
        if uses:
            found.append(name)
            for check, seed in others:
                case(target.subject(check, seed, target.text))
    return found


@dataclass
class Check:
    """Takes a text in the place of the target's and raises if a case notices; runs in a process of its own.

    Attributes:
        cases: names of the cases, those first that are known to notice most.
    """

    target: Target
    cases: Sequence[str]
    _noticed: Counter[str] = field(default_factory=Counter)
    _unbroken: list[Request] = field(default_factory=list)

    def __call__(self, text: str) -> None:
        if text == self.target.text:
            self._unbroken = self._passes(text, QUICK)
            self._show(self._unbroken)
            return
        requests = self._passes(text, QUICK)
        # One at a time: the first that differs tells.
        pairs = zip(requests, self._unbroken, strict=True)
        same = all(machine_code([ours]) == machine_code([theirs]) for ours, theirs in pairs)
        if not same:
            self._passes(text, FULL)
        self._show(requests if same else [])

    @staticmethod
    def _show(requests: list[Request]) -> None:
        """Tells the run which kernels to compare with those of the unbroken text; none: they differ."""
        build.requests[:] = requests

    def _passes(self, text: str, level: str) -> list[Request]:
        """The kernels that were compiled, in the order of the cases' names."""
        cases = self.target.cases()
        order = sorted(self.cases, key=lambda name: -self._noticed[name])
        requests: dict[str, list[Request]] = {}
        for name in order:
            build.requests.clear()
            for check, seed in _LEVELS[level]:
                try:
                    cases[name](self.target.subject(check, seed, text))
                except Exception as error:
                    self._noticed[name] += 1
                    message = str(error).strip().partition("\n")[0]
                    raise KernelError(f"{level}; {name}; {type(error).__name__}: {message}") from error
            requests[name] = list(build.requests)
        unique = dict.fromkeys(request for name in sorted(requests) for request in requests[name])
        return list(unique)
