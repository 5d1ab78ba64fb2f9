"""CuPy with a count of what the host asks of it (launches, graphs, copies, waits) and each kernel's time.

Must not know: what is launched.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from bench.device.gpu import Gpu


class CountedCupy:
    """Pass it where the backend expects CuPy.

    `counts`: "launches" by themselves, "graphs", "launches in graphs", "copies", "waits". While a stream is
    captured nothing is counted but what the graph will launch.
    """

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self._cupy = gpu.cupy
        self.counts: Counter[str] = Counter()
        self.capturing: list[str] | None = None
        self.cuda = _CountedCuda(self, gpu.cupy.cuda)
        self._spans: list[tuple[str, Any, Any]] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cupy, name)

    def asnumpy(self, array: Any, out: Any = None, *, blocking: bool = True) -> Any:
        self.counts["waits" if blocking else "copies"] += 1
        return self._cupy.asnumpy(array, out=out, blocking=blocking)

    def copyto(self, to: Any, values: Any) -> None:
        self.counts["copies"] += 1
        self._cupy.copyto(to, values)

    def RawModule(self, *, code: str, options: tuple[str, ...]) -> _CountedModule:
        return _CountedModule(self, self._cupy.RawModule(code=code, options=options))

    @contextmanager
    def timed_launches(self) -> Iterator[dict[str, list[float]]]:
        """Within it every launch by itself is timed; afterwards kernel name -> seconds of each of its
        launches, in order."""
        times: dict[str, list[float]] = {}
        self._spans = []
        try:
            yield times
            self._gpu.timed(lambda: None)  # waits for all of them
            for name, first, last in self._spans:
                times.setdefault(name, []).append(self._gpu.seconds(first, last))
        finally:
            self._spans = None

    def launched(self, name: str, launch: Any) -> None:
        if self.capturing is not None:
            self.capturing.append(name)
            launch()
            return
        self.counts["launches"] += 1
        if self._spans is None:
            launch()
            return
        first, last = self._gpu.mark(), self._gpu.mark()
        first.record()
        launch()
        last.record()
        self._spans.append((name, first, last))


class _CountedModule:
    def __init__(self, owner: CountedCupy, module: Any) -> None:
        self._owner = owner
        self._module = module

    def get_function(self, name: str) -> _CountedFunction:
        return _CountedFunction(self._owner, name, self._module.get_function(name))


class _CountedFunction:
    def __init__(self, owner: CountedCupy, name: str, function: Any) -> None:
        self._owner = owner
        self._name = name
        self._function = function

    @property
    def max_dynamic_shared_size_bytes(self) -> int:
        return int(self._function.max_dynamic_shared_size_bytes)

    @max_dynamic_shared_size_bytes.setter
    def max_dynamic_shared_size_bytes(self, value: int) -> None:
        self._function.max_dynamic_shared_size_bytes = value

    def __call__(self, grid: Any, block: Any, arguments: Any, *, shared_mem: int = 0) -> None:
        self._owner.launched(
            self._name, lambda: self._function(grid, block, arguments, shared_mem=shared_mem)
        )


class _CountedGraph:
    def __init__(self, owner: CountedCupy, graph: Any, launches: int) -> None:
        self._owner = owner
        self._graph = graph
        self._launches = launches

    def launch(self, stream: Any = None) -> None:
        self._owner.counts["graphs"] += 1
        self._owner.counts["launches in graphs"] += self._launches
        self._graph.launch(stream)


class _CountedCuda:
    """The part that is `cupy.cuda`. Streams and events are CuPy's own, with methods that count."""

    def __init__(self, owner: CountedCupy, cuda: Any) -> None:
        self._owner = owner
        self._cuda = cuda

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cuda, name)

    def Event(self, **settings: Any) -> Any:
        return self._waiting(self._cuda.Event(**settings))

    def Stream(self, **settings: Any) -> Any:
        stream, owner = self._waiting(self._cuda.Stream(**settings)), self._owner
        begin, end = stream.begin_capture, stream.end_capture

        def begin_capture(*arguments: Any) -> None:
            begin(*arguments)
            owner.capturing = []

        def end_capture() -> _CountedGraph:
            launches, owner.capturing = owner.capturing or [], None
            return _CountedGraph(owner, end(), len(launches))

        stream.begin_capture, stream.end_capture = begin_capture, end_capture
        return stream

    def _waiting(self, thing: Any) -> Any:
        """`thing`, whose `synchronize` counts as a wait from now on."""
        wait, counts = thing.synchronize, self._owner.counts

        def synchronize() -> None:
            counts["waits"] += 1
            wait()

        thing.synchronize = synchronize
        return thing
