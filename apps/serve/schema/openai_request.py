"""The fields that chat and completions have in common, and what they come to. Spec: chat §4, §5.4."""

from __future__ import annotations

from typing import Any

from apps.serve.schema.fields import LenientModel, StopStrings, StreamOptions, WholeNumber
from apps.serve.schema.turn_options import SamplingFields, generation_settings
from apps.serve.settings import ServerSettings
from shared.errors import RequestError
from shared.generate import GenerationSettings


class OpenAiRequest(LenientModel):
    """Sampling values are taken as sent; their ranges are the sampler's business."""

    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: WholeNumber | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: WholeNumber | None = None
    min_p: float | None = None
    seed: WholeNumber | None = None
    stop: StopStrings = ()
    thinking: Any = None
    think: bool | None = None
    reasoning_effort: str | None = None
    n: WholeNumber | None = None
    logit_bias: dict[str, Any] | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None

    @property
    def include_usage(self) -> bool:
        """The stream ends with its token counts."""
        return bool(self.stream_options and self.stream_options.include_usage)

    @property
    def budget(self) -> int | None:
        """How many tokens the answer may have, if the client says so."""
        return self.max_tokens

    @property
    def alternatives(self) -> int | None:
        """How many of the best tokens go with each token and its log probability; None: no such numbers."""
        return None

    def generation(self, settings: ServerSettings, *, thinking: bool) -> GenerationSettings:
        """How the answer is sampled."""
        return generation_settings(
            SamplingFields(
                self.temperature,
                self.top_p,
                self.top_k,
                self.min_p,
                self.frequency_penalty,
                self.presence_penalty,
            ),
            settings,
            thinking=thinking,
            max_tokens=self.budget,
            stop=self.stop,
            seed=self.seed,
            top_logprobs=self.alternatives,
        )

    def refuse(self, *fields: str) -> None:
        """Fields that would change the answer and that nothing here honours must not be skipped silently."""
        if self.n is not None and self.n != 1:
            raise RequestError("n: only one answer per request is supported", param="n")
        for name in fields:
            if getattr(self, name):
                raise RequestError(f"{name} is not supported", param=name)
