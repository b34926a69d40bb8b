"""CASES 9: one normaliser with Ollama's rules."""

from __future__ import annotations

import pytest

from ollama_spec import names


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Gemma4-Spec", "gemma4-spec:LATEST"),
        ("gemma4-spec", "registry.ollama.ai/library/Gemma4-Spec:latest"),
        ("library/m", "m:latest"),
        ("hf.co/Org/Repo-GGUF:Q4_K_M", "hf.co/org/repo-gguf:q4_k_m"),
        ("https://registry.ollama.ai/library/m", "m"),
    ],
)
def test_case_9_spellings_of_one_model(one: str, other: str) -> None:
    assert names.parse(one).key == names.parse(other).key


@pytest.mark.parametrize(
    "text", ["", "../x", "a/b/c/d", "m@sha256:00", ".hidden", "m:", ":tag", "a b", "m/", "x" * 81]
)
def test_case_9_bad_names_are_refused(text: str) -> None:
    with pytest.raises(names.InvalidName, match="invalid model name"):
        names.parse(text)


def test_display_drops_the_defaults_and_keeps_case_and_tag() -> None:
    assert names.parse("registry.ollama.ai/library/Gemma").display == "Gemma:latest"
    assert names.parse("Me/Gemma:1").display == "Me/Gemma:1"
    assert names.parse("hf.co/Org/Repo:Q4").display == "hf.co/Org/Repo:Q4"
    assert names.parse("m").full == "registry.ollama.ai/library/m:latest"


def test_a_host_may_hold_a_port() -> None:
    parsed = names.parse("localhost:5000/me/m")
    assert (parsed.host, parsed.tag) == ("localhost:5000", "latest")


@pytest.mark.parametrize(
    ("raw", "base", "source"),
    [
        ("m", "m", None),
        ("m:1b", "m:1b", None),
        ("m:local", "m", "local"),
        ("m:CLOUD", "m", "cloud"),
        ("m:20b-cloud", "m:20b", "cloud"),
        ("host/ns-cloud/m", "host/ns-cloud/m", None),
    ],
)
def test_source_suffixes(raw: str, base: str, source: str | None) -> None:
    assert names.parse_reference(raw) == names.ModelReference(base, source)


def test_two_source_suffixes_are_refused() -> None:
    with pytest.raises(names.InvalidName, match="not both"):
        names.parse_reference("m:local:cloud")
