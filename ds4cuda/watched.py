"""A session whose model's routed experts are watched: what a layer leaves in scratch memory is shown before
the next one overwrites it. Must not know: why anyone watches.
"""

from __future__ import annotations

from ds4cuda.model import Model
from ds4cuda.session import CudaSession
from ds4cuda.step import Step
from shared.expert_watch import ExpertWatch
from shared.power import PowerGovernor


class WatchedSession(CudaSession):
    """Shows prompts, not generation. Operands are those before they are rounded to 8 bits."""

    def __init__(
        self, model: Model, context: int, prefill_chunk: int, power: PowerGovernor, watch: ExpertWatch
    ) -> None:
        super().__init__(model, context, prefill_chunk, power)
        self._watch = watch

    def _layer_done(self, layer: int, step: Step) -> None:
        x, chosen, hidden = (self._device.download(array) for array in self._model.expert_operands(step))
        self._watch(layer, x, chosen, hidden.reshape(*chosen.shape, -1))
