"""`verify`, `bench` and `tune` as a user runs them, on the wired pair."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from fixtures.wired import pair

from ollama_spec.commands import bench, tune, verify
from ollama_spec.errors import OllamaSpecError
from ollama_spec.measure.server import basic_argv, free_port, running
from ollama_spec.profiles import PrefillSettings, Profile, RunnerSettings, WeightFile
from ollama_spec.store import ModelRecord, ModelStore

pytestmark = pytest.mark.real_runner


@pytest.fixture
def model(isolated_home: Path) -> str:
    made = pair()
    record = ModelRecord(
        name="wired:latest",
        target=WeightFile(path=made.target, size=made.target.stat().st_size),
        drafter=WeightFile(path=made.drafter, size=made.drafter.stat().st_size),
        profile=Profile(runner=RunnerSettings(args=["-t", "1"])),
    )
    ModelStore().put(record)
    return "wired"


def call(command: Any, *args: object) -> Any:
    done = CliRunner().invoke(command, [str(arg) for arg in args], catch_exceptions=False)
    assert done.exit_code == 0
    return json.loads(done.stdout)


def test_bench_measures_three_ways_and_writes_its_files(
    model: str, patched_runner: Path, tmp_path: Path
) -> None:
    page, table = tmp_path / "r.html", tmp_path / "r.csv"
    files = ["--html", page, "--csv", table]
    options = ["--runner", patched_runner, "--quick", "--set", "chat", "--json"]
    found = call(bench.command, model, *options, *files)
    by_name = {line["config"]: line for line in found["summary"]}
    assert list(by_name) == ["plain", "strict", "relaxed"]
    assert by_name["plain"]["acceptance"] is None
    assert by_name["relaxed"]["acceptance"] > by_name["strict"]["acceptance"] > 0
    assert by_name["strict"]["regret_nats_per_token"] == 0
    assert 0 < by_name["relaxed"]["regret_nats_per_token"] <= 0.05
    assert all(row["tokens"] == 32 for row in found["rows"])
    assert "<svg" in page.read_text() and table.read_text().count("\n") == 1 + 3 * 2 * 2


def test_bench_scores_a_repeated_prompt_anew(model: str, patched_runner: Path) -> None:
    """Else every repeat of a sparse prefill would come without the price of its scoring."""
    store = ModelStore()
    record = store.get(model)
    prefill = PrefillSettings(mode="sparse", speculator=record.target, min_tokens=256, min_gain=0)
    profile = record.profile.model_copy(update={"prefill": prefill})
    store.put(record.model_copy(update={"profile": profile}))
    options = ["--config", "sparse", "--set", "long:2000", "--prompts", 1, "--repeats", 3]
    found = call(
        bench.command, model, "--runner", patched_runner, *options, "--tokens", 2, "--json"
    )
    reports = [row["prefill"] for row in found["rows"] if row["config"] == "sparse"]
    costs = [report["score_ms"] for report in reports]
    assert {report["status"] for report in reports} == {"active"}
    assert min(costs) > 0.5 * max(costs), costs


def test_bench_measures_a_running_server(patched_runner: Path) -> None:
    port = free_port()
    argv = [*basic_argv(patched_runner, pair().target, port), "-t", "1"]
    with running(argv, port) as url:
        both = ["--endpoint", f"llama+{url}", "--endpoint", f"openai+{url}"]
        found = call(bench.command, "any", *both, "--quick", "--set", "chat", "--json")
    assert [line["config"] for line in found["summary"]] == [f"llama+{url}", f"openai+{url}"]
    assert all(line["tokens_per_second"]["value"] > 0 for line in found["summary"])


def test_tune_writes_only_what_it_may(model: str, patched_runner: Path) -> None:
    before = ModelStore().get(model)
    options = [model, "--runner", patched_runner, "--quick", "--json"]
    dry = call(tune.command, *options, "--dry-run", "--allow-lossy")
    assert ModelStore().get(model) == before
    assert dry["servers_started"] <= 12 and dry["rules_replayed"] > 50
    assert len(dry["confirmed"]) >= 3
    wet = call(tune.command, *options)
    after = ModelStore().get(model)
    assert wet["chosen"]["lossless"] and after.profile.lossless
    assert after.profile.spec.n_max == wet["chosen"]["n_max"]
    evidence = json.loads(Path(wet["evidence"]).read_text())
    assert evidence["chosen"] == wet["chosen"] and evidence["machine"]["date"]


def test_verify_reports_and_fails_as_a_command(
    model: str, patched_runner: Path, stock_runner: Path
) -> None:
    options = [model, "--runner", patched_runner, "--quick", "--json"]
    found = call(verify.command, *options, "--stock", stock_runner)
    assert found["passed"] and len(found["checks"]) == 11
    with pytest.raises(OllamaSpecError, match="no relaxed acceptance"):
        call(verify.command, model, "--runner", stock_runner)
