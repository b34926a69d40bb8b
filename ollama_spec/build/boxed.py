"""Run a server that was built in a container inside that container's image: `--in-container`.

`python -m ollama_spec.build.boxed IMAGE GPUS FOLDER PROGRAM ARGUMENT...` is what the artefact's
bin/PROGRAM calls. Files named in the arguments are seen at their own paths. The container ends with
this process however it ends: its standard input is a pipe that only we hold open.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from ollama_spec.errors import DockerUnavailable

_INSIDE = "/ollama-spec"
_PASSED = ("LLAMA_ARG_", "GGML_", "CUDA_", "OLLAMA_")
# The server runs beside a reader of our pipe, whose end ends the server.
_SCRIPT = """\
exec 3<&0
"$@" < /dev/null &
child=$!
trap 'kill -TERM $child' TERM INT
{ cat <&3 > /dev/null; kill -TERM $child; } 2> /dev/null &
wait $child; code=$?
while kill -0 $child 2> /dev/null; do wait $child; code=$?; done
exit $code
"""


def command(
    docker: str, image: str, gpus: bool, folder: Path, program: str, arguments: list[str]
) -> list[str]:
    """The `docker run` for `folder`/`program` with `arguments`."""
    argv = [
        docker,
        "run",
        "--rm",
        "--interactive",
        "--init",
        "--user",
        f"{os.getuid()}:{os.getgid()}",
    ]
    argv += ["--cap-drop", "ALL", "--security-opt", "no-new-privileges"]
    # A socket needs no network; a port does, the host's own.
    argv += ["--network", "host" if "--port" in arguments else "none"]
    argv += ["--gpus", "all"] if gpus else []
    argv += ["--volume", f"{folder}:{_INSIDE}:ro"]
    for place, mode in sorted(mounts(arguments).items()):
        argv += ["--volume", f"{place}:{place}:{mode}"]
    for name in sorted(os.environ):
        if name.startswith(_PASSED):
            argv += ["--env", name]
    return [*argv, image, "sh", "-c", _SCRIPT, "sh", f"{_INSIDE}/{program}", *arguments]


def mounts(arguments: list[str]) -> dict[Path, str]:
    """Folders of the files in `arguments`: read-only where the file exists, else writable."""
    found: dict[Path, str] = {}
    for path in (Path(word) for word in arguments if word.startswith("/")):
        exists = path.is_file()
        for folder in {path.parent, path.resolve().parent} if exists else {path.parent}:
            if folder.is_dir() and (not exists or folder not in found):
                found[folder] = "ro" if exists else "rw"
    return found


def main(image: str, gpus: str, folder: str, program: str, *arguments: str) -> int:
    docker = shutil.which("docker") or shutil.which("podman")
    if docker is None:
        raise DockerUnavailable("this runner runs in a container, and there is no docker or podman")
    argv = command(docker, image, gpus == "gpus", Path(folder).resolve(), program, list(arguments))
    child = subprocess.Popen(argv, stdin=subprocess.PIPE)
    return child.wait()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
