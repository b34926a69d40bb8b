"""Hooks: exactly one line, all or nothing, and an error that says where to look."""

from __future__ import annotations

from pathlib import Path

import pytest

from ollama_spec.build import overlay
from ollama_spec.build.overlay import Hook, OnlyIf, Overlay, Source, Tool
from ollama_spec.errors import OverlayError

SERVER = '#include "a.h"\nint f() {\n    go(1);\n    stop();\n}\n'
TREE = {
    "tools/server/CMakeLists.txt": "add_library(server-context STATIC server.cpp)\n",
    "common/CMakeLists.txt": "add_library(llama-common arg.cpp)\n",
    "tools/server/server.cpp": SERVER,
    "tools/server/server.h": "#pragma once\n",
}


def hook(action: str, line: str, anchor: str | None = None, **more: object) -> Hook:
    values = {"id": "h", "file": "tools/server/server.cpp", "anchor": anchor, "action": action}
    return Hook.model_validate({**values, "line": line, **more})


def plan(*hooks: Hook, tag: str = "b100", **more: object) -> dict[str, str]:
    return overlay.plan(Overlay.model_validate({"hooks": hooks, **more}), tag, TREE.get)


def test_before_after_replace_and_append_touch_one_line_each() -> None:
    text = overlay.apply_hooks(
        SERVER,
        [
            hook("before", "ours_before();", "go(1);"),
            hook("after", "ours_after();", "go(1);"),
            hook("replace", "ours(1)", "go(1)"),
            hook("after", '#include "ours.h"', '#include "a.h"'),
            hook("append", "// end"),
        ],
        "b100",
    )
    assert text == (
        '#include "a.h"\n#include "ours.h"\nint f() {\n    ours_before();\n    ours(1);\n'
        "    ours_after();\n    stop();\n}\n// end\n"
    )


def test_text_with_form_feeds_and_line_separators_is_kept_as_it_is() -> None:
    text = "a\x0cb\u2028c\nanchor\n"
    assert overlay.apply_hooks(text, [hook("after", "x", "anchor")], "b1") == text + "x\n"


def test_a_hook_never_sees_the_line_of_another() -> None:
    hooks = [hook("after", "stop_all(); go(1);", "go(1);"), hook("after", "two();", "go(1);")]
    assert overlay.apply_hooks(SERVER, hooks, "b1").count("two();") == 1


@pytest.mark.parametrize(
    ("anchor", "words"),
    [
        ("go(2);", ["hook h", "tools/server/server.cpp", "b100", "0 lines", "3: go(1);"]),
        ("(", ["hook h", "3 lines", "2: int f() {", "4: stop();"]),
    ],
)
def test_a_miss_names_hook_file_tag_and_nearest_lines(anchor: str, words: list[str]) -> None:
    with pytest.raises(OverlayError) as caught:
        plan(hook("after", "x", anchor))
    for word in words:
        assert word in caught.value.message
    assert caught.value.hint


def test_an_anchor_twice_on_one_line_is_no_anchor() -> None:
    with pytest.raises(OverlayError):
        overlay.apply_hooks("go(); go();\n", [hook("replace", "x", "go()")], "b1")


def test_a_file_the_tag_lacks_is_named() -> None:
    with pytest.raises(OverlayError, match=r"b100 has no file src/none.cpp"):
        plan(hook("append", "x", file="src/none.cpp"))


@pytest.mark.parametrize(
    ("condition", "tag", "holds"),
    [
        (None, "b1", True),
        (">=b10435", "b10435", True),
        (">=b10435", "b10434", False),
        ("<b10435", "b10434", True),
        (">=b9840, <b10435", "b9840", True),
        (">=b9840, <b10435", "b10435", False),
        ("=b7", "b7", True),
    ],
)
def test_tag_conditions(condition: str | None, tag: str, holds: bool) -> None:
    assert overlay.tag_matches(tag, condition) is holds


@pytest.mark.parametrize("tag", ["10488", "b", "v1", "b10x"])
def test_what_is_not_a_tag_is_refused(tag: str) -> None:
    with pytest.raises(OverlayError, match=r"not a llama.cpp tag"):
        overlay.tag_number(tag)


def test_only_if_chooses_between_families() -> None:
    present = OnlyIf(file="tools/server/server.h", contains="pragma")
    assert plan(hook("append", "x", only_if=present))
    absent = OnlyIf(file="tools/server/server.h", contains="pragma", absent=True)
    assert plan(hook("append", "x", only_if=absent)) == {}


def test_sources_headers_and_tools_reach_cmake() -> None:
    texts = plan(
        hook("append", "x"),
        hook("append", "y", file="tools/server/server.h"),
        sources=[Source(file="accept.cpp", target="llama-common")],
        tools=[Tool(name="llama-specprefill", sources=["tool.cpp"])],
    )
    here = "${CMAKE_CURRENT_LIST_DIR}"
    assert (
        f"target_sources(llama-common PRIVATE {here}/../ollama-spec/accept.cpp)"
        in texts["common/CMakeLists.txt"]
    )
    server = texts["tools/server/CMakeLists.txt"]
    ours = f"{here}/../../ollama-spec"
    assert server.startswith(TREE["tools/server/CMakeLists.txt"])
    assert f"SOURCE server.cpp APPEND PROPERTY INCLUDE_DIRECTORIES {ours})" in server
    assert f"target_include_directories(server-context PUBLIC {ours})" in server
    assert f"add_executable(llama-specprefill {ours}/tool.cpp)" in server


def test_an_unknown_key_or_action_is_refused(tmp_path: Path) -> None:
    (tmp_path / "hooks.yaml").write_text("hooks: [{id: a, file: f, action: under, line: x}]")
    with pytest.raises(OverlayError, match="not a valid list of hooks"):
        overlay.load(tmp_path)


def test_the_digest_follows_code_and_hooks_but_not_notes(tmp_path: Path) -> None:
    (tmp_path / "hooks.yaml").write_text("hooks: []")
    (tmp_path / "a.cpp").write_text("int a;")
    first = overlay.digest(tmp_path)
    (tmp_path / "README.md").write_text("words")
    assert overlay.digest(tmp_path) == first
    (tmp_path / "a.cpp").write_text("int b;")
    assert overlay.digest(tmp_path) != first
