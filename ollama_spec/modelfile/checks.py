"""`verify pair`: everything that can be known about a pair without starting it, in one report."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ollama_spec import gguf, output
from ollama_spec.errors import PairingError
from ollama_spec.gguf import GgufHeader
from ollama_spec.modelfile import memory, pairing
from ollama_spec.profiles import Strict

DEFAULT_CONTEXT = 4096  # tokens; what Ollama takes where memory is scarce


class FileFacts(Strict):
    path: Path
    architecture: str
    tokens: int
    size: int
    parameters: str
    quantization: str


class Memory(Strict):
    """Bytes, for one sequence of `context` tokens with an f16 cache."""

    context: int
    weights: int
    cache: int
    drafter_weights: int = 0
    drafter_cache: int = 0
    speculator: int = 0
    compute: int
    free_ram: int
    free_gpu: int

    @property
    def total(self) -> int:
        drafter = self.drafter_weights + self.drafter_cache
        return self.weights + self.cache + drafter + self.speculator + self.compute

    @property
    def verdict(self) -> str:
        """Where the pair fits: "gpu", "gpu and ram", "ram" or "nowhere"."""
        if self.free_gpu and self.total <= self.free_gpu:
            return "gpu"
        if self.total <= self.free_ram:
            return "gpu and ram" if self.free_gpu else "ram"
        return "gpu and ram" if self.total <= self.free_gpu + self.free_ram else "nowhere"


class PairReport(Strict):
    target: FileFacts
    drafter: FileFacts | None
    spec_type: str | None
    needs_tag: str | None  # first llama.cpp tag that runs it; None: any supported one
    runner_tag: str | None  # None: not known
    memory: Memory
    problems: list[str]
    hints: list[str]

    @property
    def ok(self) -> bool:
        return not self.problems


def check_pair(
    target: Path,
    drafter: Path | None = None,
    *,
    speculator: Path | None = None,
    tag: str | None = None,
    context: int = 0,
) -> PairReport:
    """Judge a pair of files for a runner of llama.cpp `tag`.

    A file that is no GGUF raises PairingError; whatever does not fit is a problem in the report.
    `context` 0 takes 4096 tokens, or the model's own limit where that is smaller.
    """
    one = gguf.read_header(target)
    other = gguf.read_header(drafter) if drafter else None
    scorer = gguf.read_header(speculator) if speculator else None
    found = [
        *_problem(pairing.check_target, one),
        *(_problem(pairing.check_pair, one, other) if other else []),
        *(_problem(pairing.check_vocabulary, one, scorer) if scorer else []),
        *(_problem(pairing.check_tag, one, other, tag) if tag else []),
    ]
    room = memory_of(one, other, scorer, context)
    if room.verdict == "nowhere":
        found.append(_too_big(room))
    need = pairing.minimum_tag(one, other)
    return PairReport(
        target=_facts(one),
        drafter=_facts(other) if other else None,
        spec_type=pairing.choose_spec_type(one, other, tag),
        needs_tag=f"b{need}" if need else None,
        runner_tag=tag,
        memory=room,
        problems=[error.message for error in found],
        hints=[error.hint for error in found if error.hint],
    )


def memory_of(
    target: GgufHeader,
    drafter: GgufHeader | None = None,
    speculator: GgufHeader | None = None,
    context: int = 0,
) -> Memory:
    """What a pair needs at `context` tokens, beside what is free now."""
    tokens = context or min(DEFAULT_CONTEXT, target.context_length or DEFAULT_CONTEXT)
    models = [header for header in (target, drafter, speculator) if header]
    return Memory(
        context=tokens,
        weights=target.size,
        cache=memory.cache_bytes(target, tokens),
        drafter_weights=drafter.size if drafter else 0,
        drafter_cache=memory.cache_bytes(drafter, tokens) if drafter else 0,
        speculator=speculator.size + memory.cache_bytes(speculator, tokens) if speculator else 0,
        compute=sum(memory.compute_bytes(header) for header in models),
        free_ram=memory.free_ram(),
        free_gpu=memory.free_gpu(),
    )


def _problem(check: Callable[..., None], *arguments: object) -> list[PairingError]:
    try:
        check(*arguments)
    except PairingError as error:
        return [error]
    return []


def _too_big(room: Memory) -> PairingError:
    free = output.human_size(room.free_ram + room.free_gpu)
    return PairingError(
        f"needs {output.human_size(room.total)} of memory at {room.context} tokens, {free} free",
        hint="choose a smaller quantisation or context, or free some memory",
    )


def _facts(header: GgufHeader) -> FileFacts:
    return FileFacts(
        path=header.path,
        architecture=header.arch,
        tokens=header.vocab_size,
        size=header.size,
        parameters=header.parameter_size,
        quantization=header.file_type,
    )


def text(report: PairReport) -> str:
    """The report for people."""
    room, size = report.memory, output.human_size
    lines = [f"target     {_line(report.target)}"]
    if report.drafter:
        lines.append(f"drafter    {_line(report.drafter)}")
    lines.append(f"drafting   {report.spec_type or 'none'}")
    runner = f"; the runner is {report.runner_tag}" if report.runner_tag else ""
    lines.append(f"llama.cpp  {report.needs_tag or 'any supported tag'}{runner}")
    parts = [f"weights {size(room.weights)}", f"cache {size(room.cache)}"]
    if report.drafter:
        parts.append(f"drafter {size(room.drafter_weights)} + {size(room.drafter_cache)}")
    if room.speculator:
        parts.append(f"speculator {size(room.speculator)}")
    parts.append(f"buffers about {size(room.compute)}")
    lines.append(f"memory     {size(room.total)} at {room.context} tokens: {', '.join(parts)}")
    free = f"{size(room.free_ram)} RAM"
    free += f", {size(room.free_gpu)} GPU" if room.free_gpu else ""
    lines.append(f"free       {free}: fits {room.verdict}")
    lines += [f"problem    {problem}" for problem in report.problems]
    if report.drafter and report.ok:
        names = f"{report.drafter.path.name} fits {report.target.path.name}"
        lines.append(f"{names}: {report.spec_type}")
    return "\n".join(lines)


def _line(facts: FileFacts) -> str:
    return (
        f"{facts.path.name}: {facts.architecture}, {facts.parameters} {facts.quantization}, "
        f"{facts.tokens} tokens, {output.human_size(facts.size)}"
    )
