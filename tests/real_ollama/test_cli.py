"""The real `ollama` command, unchanged, against the sidecar: the same screen as against Ollama."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pexpect
import pytest
from real_ollama.servers import RealOllama, Server

_SPINNER = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[⠀-⣿]|\r")
_TIMES = re.compile(
    r"\b(\d+ (seconds|minutes|hours) (ago|from now)|Less than a second ago|"
    r"About a minute ago|(About a|\d+) minutes? (ago|from now)|Just now)\b"
)
_DIGEST = re.compile(r"\b[0-9a-f]{12}\b")
_SIZE = re.compile(r"\b\d+(\.\d+)? [MG]B\b")
_PATH = re.compile(r"/\S*/(blobs/)?\S+")


def screen(text: str) -> str:
    """What a user reads, without times, digests and sizes."""
    for pattern, shown in (
        (_SPINNER, ""),
        (_TIMES, "<time>"),
        (_DIGEST, "<digest>"),
        (_SIZE, "<size>"),
        (_PATH, "<path>"),
    ):
        text = pattern.sub(shown, text)
    return "\n".join(" ".join(line.split()) for line in text.splitlines() if line.strip())


class Cli:
    def __init__(self, ollama: RealOllama, target: Server) -> None:
        self.program = str(ollama.program)
        self.env = {**ollama.env, "OLLAMA_HOST": target.address, "OLLAMA_NOHISTORY": "1"}

    def __call__(self, *arguments: str, typed: str | None = None) -> tuple[int, str]:
        done = subprocess.run(
            [self.program, *arguments],
            env=self.env,
            input=typed,
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
            stdin=None if typed is not None else subprocess.DEVNULL,
        )
        return done.returncode, screen(done.stdout + "\n" + done.stderr)


@pytest.fixture(scope="module")
def clis(real_ollama: RealOllama, sidecar: Server) -> tuple[Cli, Cli]:
    return Cli(real_ollama, real_ollama), Cli(real_ollama, sidecar)


@pytest.mark.parametrize(
    "arguments",
    [
        ("list",), ("ls",), ("show", "smol"), ("show", "smol", "--modelfile"),
        ("show", "smol", "--parameters"), ("show", "smol", "--template"),
        ("show", "smol", "--system"), ("show", "smol", "--license"),
        ("show", "nosuch"), ("stop", "nosuch"), ("rm", "nosuch"), ("cp", "nosuch", "other"),
        ("pull", "127.0.0.1:9/no/such"), ("run", "smol", "--nosuch"), ("--version",),
    ],
    ids=" ".join,
)  # fmt: skip
def test_same_screen(clis: tuple[Cli, Cli], arguments: tuple[str, ...]) -> None:
    theirs, ours = (cli(*arguments) for cli in clis)
    assert ours == theirs


def test_show_verbose_lists_the_tensors(clis: tuple[Cli, Cli]) -> None:
    theirs, ours = (cli("show", "smol", "--verbose") for cli in clis)
    assert "token_embd.weight" in theirs[1]
    assert sorted(ours[1].splitlines()) == sorted(theirs[1].splitlines())


def test_run_one_shot_and_piped(clis: tuple[Cli, Cli], greedy: None) -> None:
    for cli in clis:
        code, text = cli("run", "greedy", "Say hi")
        assert (code, text) == (0, greedy_answer(clis))
        code, piped = cli("run", "greedy", typed="Say hi")
        assert (code, piped) == (0, text)


def greedy_answer(clis: tuple[Cli, Cli]) -> str:
    return clis[0]("run", "greedy", "Say hi")[1]


@pytest.fixture(scope="module")
def greedy(clis: tuple[Cli, Cli], tmp_path_factory: pytest.TempPathFactory) -> None:
    """A model that always says the same short thing, created by the CLI through the sidecar."""
    folder = tmp_path_factory.mktemp("greedy")
    (folder / "Modelfile").write_text(
        "FROM smol\nPARAMETER temperature 0\nPARAMETER num_predict 8\n"
    )
    code, text = clis[1]("create", "greedy", "-f", str(folder / "Modelfile"))
    assert code == 0, text
    assert "success" in text


def test_run_interactively(clis: tuple[Cli, Cli], greedy: None) -> None:
    shown = []
    for cli in clis:
        child = pexpect.spawn(
            cli.program, ["run", "smol"], env=cli.env, encoding="utf-8", timeout=120
        )
        child.expect("Send a message")
        child.send("/set parameter temperature 0\r")
        child.expect("Set parameter 'temperature' to '0'")
        child.send("/set parameter num_predict 6\r")
        child.expect("Set parameter 'num_predict' to '6'")
        child.send("Say hi\r")
        child.expect(r"glad[^>]*>>>")
        shown.append("glad")
        child.send("/show info\r")
        child.expect("134.52M")
        child.send("/bye\r")
        child.expect(pexpect.EOF)
        child.close()
        assert child.exitstatus == 0
    assert shown == ["glad", "glad"]


def test_ps_and_stop(clis: tuple[Cli, Cli]) -> None:
    for cli in clis:
        cli("stop", "greedy")  # in Ollama, names of one blob share a runner
        assert cli("run", "smol", "")[0] == 0  # loads it
        assert re.search(r"smol:latest .* 100% CPU 4096 ", cli("ps")[1])
        assert cli("stop", "smol") == (0, "")
        assert "smol:latest" not in cli("ps")[1] or "Stopping" in cli("ps")[1]


def test_cp_and_rm_of_a_model_of_ours(clis: tuple[Cli, Cli], sidecar: Server) -> None:
    theirs, ours = clis
    for cli in (theirs, ours):
        assert cli("cp", "smol", "copied") == (0, "copied 'smol' to 'copied'")
    records = sidecar.home / "data/ollama-spec/models"
    assert list(records.rglob("copied")), "the sidecar copies its own record"
    blob = next(Path(theirs.env["OLLAMA_MODELS"]).glob("blobs/*"))
    for cli in (ours, theirs):
        assert cli("rm", "copied") == (0, "deleted 'copied'")
    assert blob.exists()
    assert not list(records.rglob("copied/latest.json"))
