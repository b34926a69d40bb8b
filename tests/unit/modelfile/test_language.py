"""The Modelfile language: CASES 30 and 31, typed parameters, errors with file, line and text."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ollama_spec.errors import ModelfileError
from ollama_spec.modelfile import parser, writer
from ollama_spec.modelfile.syntax import Instruction, decode


def test_every_instruction() -> None:
    parsed = parser.parse(
        "# a comment\nfrom ./t.gguf\nDRAFT ./d.gguf\nPARAMETER temperature 0.5\n"
        "PARAMETER num_ctx 4096\nPARAMETER use_mmap false\nPARAMETER stop a b \nPARAMETER stop c\n"
        'TEMPLATE """{{ .Prompt }}\n{{ .Response }}"""\nSYSTEM You are brief. # really\n'
        "LICENSE MIT\nLICENSE Apache\nMESSAGE user Hi: there\nMESSAGE assistant Hello\n"
        "RENDERER gemma4\nPARSER gemma4\nREQUIRES v0.32.0\nPARAMETER mirostat 1"
    )
    assert [item.value for item in parsed.froms] == ["./t.gguf"]
    assert parsed.drafts[0].value == "./d.gguf"
    assert parsed.parameters == {
        "temperature": 0.5,
        "num_ctx": 4096,
        "use_mmap": False,
        "stop": ["a b", "c"],
    }
    assert parsed.template == "{{ .Prompt }}\n{{ .Response }}"
    assert parsed.system == "You are brief. # really"
    assert parsed.licenses == ("MIT", "Apache")
    assert parsed.messages == (("user", "Hi: there"), ("assistant", "Hello"))
    assert (parsed.renderer, parsed.parser, parsed.requires) == ("gemma4", "gemma4", "0.32.0")
    assert parsed.warnings == ("Modelfile:19: parameter mirostat is deprecated",)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("SYSTEM x", "no FROM line"),
        ("FROM a\nFORM b", r'M:2: command must be one of "from", .* or "requires": \'FORM b\''),
        ("FROM a\nPARAMETER num_ctx many", r"M:2: invalid int value \[many\]"),
        ("FROM a\nPARAMETER top_p x", r"M:2: invalid float value \[x\]"),
        ("FROM a\nPARAMETER use_mmap x", r"M:2: invalid bool value \[x\]"),
        ("FROM a\nPARAMETER foo 1", "M:2: unknown parameter 'foo'"),
        ("FROM a\nMESSAGE robot hi", 'M:2: message role must be one of "system"'),
        ('FROM a\nSYSTEM """never closed', "M:2: unexpected end of file"),
        ("FROM a\nREQUIRES soon", "M:2: requires must be a valid semver"),
        ("FROM", "M:1: FROM needs a space and a value"),
        ("FROM a\nPARAMETER stop", "M:2: PARAMETER needs a name and a value"),
    ],
)
def test_errors_name_file_line_and_text(text: str, words: str) -> None:
    with pytest.raises(ModelfileError, match=words):
        parser.parse(text, "M")


def test_quotes_stay_open_until_a_line_ends_with_them() -> None:
    parsed = parser.parse('FROM a\nSYSTEM "one" two\nthree"\nPARAMETER stop "<|im_end|>"')
    assert parsed.system == 'one" two\nthree'
    assert parsed.parameters["stop"] == ["<|im_end|>"]


def test_utf16_and_byte_order_marks_are_understood() -> None:
    for encoding in ("utf-8", "utf-8-sig", "utf-16"):
        assert decode("FROM ä".encode(encoding)) == "FROM ä"


@pytest.mark.parametrize(
    "value",
    [
        "<|im_end|>",
        'has "quotes" inside',
        '"quoted"',
        ' """ in the middle',
        "  spaces around  ",
        "a # b",
        "{{ .Prompt }}{% if x %}",
        "two\nlines",
        'ends with a quote"',
        "",
        '"',
    ],
)
def test_case_30_values_survive_writing_and_reading(value: str) -> None:
    parsed = parser.Modelfile(
        froms=(Instruction("from", "", "a", 1),), system=value, parameters={"stop": [value]}
    )
    again = parser.parse(writer.write(parsed))
    assert again.system == value
    assert again.parameters == {"stop": [value]}


def test_case_30_what_cannot_be_written_is_an_error_not_a_change() -> None:
    with pytest.raises(ModelfileError, match=r"SYSTEM: no quoting .* can hold"):
        writer.quoted('a"""\nb"\nc', "SYSTEM")
    with pytest.raises(ModelfileError, match=r"SYSTEM: the character U\+000D"):
        writer.quoted("a\rb", "SYSTEM")


def test_what_ollamas_reader_drops_is_dropped_and_never_written() -> None:
    assert parser.parse("FROM a\nSYSTEM  a\u200db\u00a0c \u3000\n").system == "abc"
    assert parser.parse('FROM a\nSYSTEM "a\u200d\nb" \u3000\nLICENSE x').system == "a\nb"
    with pytest.raises(ModelfileError, match=r"SYSTEM: the character U\+200D"):
        writer.quoted("a\u200db", "SYSTEM")


_TEXT = st.text(
    st.characters(blacklist_categories=("Cs",)) | st.sampled_from('\n" \t#{}%'),
    max_size=60,
)
_PARAMETERS = st.fixed_dictionaries(
    {},
    optional={
        "temperature": st.floats(0, 2, allow_nan=False),
        "num_ctx": st.integers(1, 10**6),
        "use_mmap": st.booleans(),
        "stop": st.lists(_TEXT, min_size=1, max_size=3),
    },
)


@given(
    texts=st.fixed_dictionaries({}, optional={"system": _TEXT, "template": _TEXT}),
    parameters=_PARAMETERS,
    licenses=st.lists(_TEXT, max_size=2),
    messages=st.lists(st.tuples(st.sampled_from(["user", "assistant"]), _TEXT), max_size=3),
)
def test_round_trip(
    texts: dict[str, str],
    parameters: dict[str, Any],
    licenses: list[str],
    messages: list[tuple[str, str]],
) -> None:
    first = parser.Modelfile(
        froms=(Instruction("from", "", "model", 1),),
        parameters=parameters,
        licenses=tuple(licenses),
        messages=tuple(messages),
        **texts,
    )
    try:
        text = writer.write(first)
    except ModelfileError:
        return  # said to be unwritable: nothing was changed silently
    again = parser.parse(text)
    assert (again.system, again.template) == (first.system, first.template)
    assert again.parameters == first.parameters
    assert again.licenses == first.licenses
    assert again.messages == first.messages
    assert writer.write(again) == text
