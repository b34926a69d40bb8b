"""The check of sparse prefill: facts hidden in long documents, found dense and sparse."""

from __future__ import annotations

from collections.abc import Callable

from ollama_spec.errors import OllamaSpecError
from ollama_spec.measure import prompts, session
from ollama_spec.measure.check import Check
from ollama_spec.runner.binary import Binary
from ollama_spec.store import ModelRecord

_CONTEXT = 8192
_CHARACTERS = 12_000  # about 3000 tokens
_KEEP = 0.3


def check(
    runner: Binary, record: ModelRecord, *, quick: bool, note: Callable[[str], None]
) -> Check:
    """Each needle that dense prefill finds, sparse prefill at keep 0.3 shall find too."""
    if not runner.specprefill:
        raise OllamaSpecError(
            f"this runner ({runner.build}) has no sparse prefill",
            hint="build ours with `ollama-spec build`",
        )
    result = Check("sparse prefill", "a fact in a long document is found as with dense prefill")
    extra = ["--specprefill"] if record.profile.prefill.mode == "dense" else []
    speculator = record.profile.prefill.speculator or record.drafter
    if extra and speculator:
        extra += ["--specprefill-model", str(speculator.path)]
    extra += ["--specprefill-min-tokens", "512", "--specprefill-min-gain", "0"]
    depths = (0.1, 0.5, 0.9) if quick else (0.1, 0.3, 0.5, 0.7, 0.9)
    dense_found = sparse_found = both = 0
    with session.serving(runner, record, num_ctx=_CONTEXT, extra=extra) as client:
        for seed, depth in enumerate(depths):
            needle = prompts.needle(_CHARACTERS, depth, seed)
            asked = client.render(needle.prompt)
            dense = client.ask(asked, 24, temperature=0, specprefill=False)
            sparse = client.ask(asked, 24, temperature=0, specprefill={"keep": _KEEP})
            status = (sparse.timings.get("specprefill") or {}).get("status")
            result.expect(status == "sparse", f"depth {depth}: prefill was {status}, not sparse")
            hits = needle.code in dense.text, needle.code in sparse.text
            dense_found += hits[0]
            sparse_found += hits[1]
            both += hits[0] and hits[1]
            result.samples.append(f"depth {depth}: {needle.code} dense {dense.text[:60]!r}, "
                                  f"sparse {sparse.text[:60]!r}")  # fmt: skip
            note(f"needle at {depth:.0%}")
    result.figures = {"needles": len(depths), "dense": dense_found, "sparse": sparse_found}
    result.expect(
        both == dense_found, f"{dense_found - both} needles that dense prefill finds are lost"
    )
    return result
