"""What a served model runs with (DESIGN 6). Unknown keys are errors; lossy modes are opt-in."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class WeightFile(Strict):
    """One GGUF: where it lies here and, if it was fetched, where it came from."""

    path: Path
    size: int = Field(ge=0, description="bytes")
    sha256: str | None = None
    repo: str | None = None
    file: str | None = None
    revision: str | None = None


class AcceptSettings(Strict):
    """Acceptance of a drafted token that differs from the target's sample (ALGORITHMS R1).

    `strict` is lossless. `relaxed` takes the drafted token when its raw target logit ranks below
    `top_n` and its probability is at least `ratio` times the best token's.
    """

    mode: Literal["strict", "relaxed"] = "strict"
    top_n: int = Field(default=5, ge=1)
    ratio: float = Field(default=0.25, ge=0, le=1)
    delta: float = Field(default=1.0, ge=0, le=1, description="TensorRT-LLM's absolute gap; 1: off")
    scope: Literal["all", "thinking"] = "all"
    window: int = Field(default=0, ge=0, description="FLy: the next W positions must match; 0: off")
    budget_nats: float = Field(
        default=0.05, ge=0, description="regret per token over the last 256 tokens, then strict"
    )


class SpecSettings(Strict):
    """Drafting. `type` is llama-server's `--spec-type`; None: chosen from the drafter's header."""

    type: str | None = None
    n_max: int = Field(default=3, ge=0, le=64, description="0: no drafting")
    n_min: int = Field(default=0, ge=0)
    p_min: float = Field(default=0.0, ge=0, le=1)
    accept: AcceptSettings = AcceptSettings()
    skip_streak: int = Field(default=0, ge=0, description="0: off")
    skip_cooldown: int = Field(default=8, ge=1)
    adaptive: Literal["off", "ema", "cost"] = "off"
    preset: Literal["throughput", "lift", "balanced", "quality"] | None = None


class PrefillSettings(Strict):
    """SpecPrefill (arXiv 2502.02789): `sparse` is lossy, `dense` is not."""

    mode: Literal["dense", "sparse"] = "dense"
    speculator: WeightFile | None = None
    min_tokens: int = Field(default=8192, ge=0)
    keep: dict[int, float] = Field(default_factory=lambda: {8192: 0.4, 32768: 0.25, 131072: 0.15})
    lookahead: int = Field(default=8, ge=0, le=64)
    chunk: int = Field(default=32, ge=1)
    pool: int = Field(default=13, ge=1)
    tail: int = Field(
        default=0, ge=0, description="last tokens always kept; 0: 512, or a longer attention window"
    )
    anchors: bool = Field(default=True, description="keep what the question quotes")
    pos: Literal["auto", "orig", "compact"] = Field(
        default="auto", description="auto: without gaps where the target has windowed layers"
    )
    reuse: bool = Field(default=True, description="later turns keep the selection while it holds")
    min_gain: float = Field(
        default=1.3, ge=0, description="predicted gain below which a prompt stays dense"
    )


class RunnerSettings(Strict):
    args: list[str] = Field(default_factory=list, description="extra llama-server arguments")
    num_ctx: int | None = Field(default=None, ge=4)
    parallel: int = Field(default=1, ge=1)


class Profile(Strict):
    spec: SpecSettings = SpecSettings()
    prefill: PrefillSettings = PrefillSettings()
    runner: RunnerSettings = RunnerSettings()

    @property
    def lossless(self) -> bool:
        return self.spec.accept.mode == "strict" and self.prefill.mode == "dense"
