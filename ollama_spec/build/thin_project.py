"""The CMake project of the thin engine: llama.cpp's common and server, on imported libraries."""

from __future__ import annotations

import re
from pathlib import Path

from ollama_spec.build import overlay


def cmake_project(src: Path, library: Path, ours: overlay.Overlay, tag: str) -> str:
    """A CMake project: llama.cpp's folders for common and server, on imported libraries.

    llama.cpp's top file cannot be used: it would build the libraries. What the folders expect from
    it (two functions, a version) is given here.
    """
    root = (src / "CMakeLists.txt").read_text()
    version = [
        (re.search(rf"set\(LLAMA_VERSION_{part}\s+(\d+)\)", root) or ["", "0"])[1]
        for part in ("MAJOR", "MINOR", "PATCH")
    ]
    batch = " ".join(
        [f"{src}/src/llama-batch.cpp"]
        + [
            f"{src}/{overlay.FOLDER}/{item.file}"
            for item in ours.sources
            if item.target == "llama" and overlay.tag_matches(tag, item.tags)
        ]
    )
    vendor = "vendor" if (src / "vendor/CMakeLists.txt").is_file() else "vendor/cpp-httplib"
    folders = [vendor, "common", "tools/ui", "tools/server", "tools/quantize"]
    imported = "\n".join(
        f"imported({name} {library}/lib{name}.so.0 {src}/{include})"
        for name, include in (
            ("ggml-base", "ggml/include"),
            ("ggml", "ggml/include"),
            ("llama", "include"),
            ("mtmd", "tools/mtmd"),
        )
    )
    added = "\n".join(
        f"add_subdirectory({src}/{name} ${{CMAKE_BINARY_DIR}}/{name})"
        for name in folders
        if (src / name / "CMakeLists.txt").is_file()
    )
    return f"""\
cmake_minimum_required(VERSION 3.14)
project(ollama-spec-thin C CXX)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${{CMAKE_BINARY_DIR}}/bin)
set(CMAKE_CXX_STANDARD 17)
set(CMAKE_BUILD_RPATH "$ORIGIN")
set(CMAKE_BUILD_WITH_INSTALL_RPATH ON)
set(CMAKE_INSTALL_RPATH "$ORIGIN")
set(LLAMA_VERSION_MAJOR {version[0]})
set(LLAMA_VERSION_BASE {".".join(version)})
set(LLAMA_VERSION {".".join(version)}-dev)
set(LLAMA_INSTALL_VERSION 0.0.${{LLAMA_BUILD_NUMBER}})
set(LLAMA_BUILD_COMMON ON)
set(LLAMA_TOOLS_INSTALL OFF)
set(BUILD_COMPILER "${{CMAKE_C_COMPILER_ID}} ${{CMAKE_C_COMPILER_VERSION}}")
set(BUILD_TARGET "${{CMAKE_SYSTEM_NAME}} ${{CMAKE_SYSTEM_PROCESSOR}}")
find_package(Threads REQUIRED)
function(llama_add_compile_flags)
endfunction()
function(license_add_file)
endfunction()
function(license_generate)
endfunction()
function(imported name file include)
    add_library(${{name}} SHARED IMPORTED GLOBAL)
    set_target_properties(${{name}} PROPERTIES IMPORTED_LOCATION ${{file}}
        INTERFACE_INCLUDE_DIRECTORIES ${{include}})
endfunction()
{imported}
set_property(TARGET ggml PROPERTY INTERFACE_LINK_LIBRARIES ggml-base)
set_property(TARGET llama PROPERTY INTERFACE_LINK_LIBRARIES ggml)
set_property(TARGET mtmd PROPERTY INTERFACE_LINK_LIBRARIES llama)
add_compile_definitions(LLAMA_SHARED GGML_SHARED GGML_BACKEND_SHARED GGML_BACKEND_DL)
include_directories({src})
{added}
target_sources(llama-server PRIVATE {batch})
set_property(SOURCE {batch} TARGET_DIRECTORY llama-server APPEND PROPERTY
    INCLUDE_DIRECTORIES "{src}/src;{src}/{overlay.FOLDER}")
set_target_properties(llama-server PROPERTIES ENABLE_EXPORTS ON)
"""
