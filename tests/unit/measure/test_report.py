"""Tables, files and the page made from a result; comparing two of them."""

from __future__ import annotations

import csv
import html.parser
import io
import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from fixtures.measure_results import result

from ollama_spec.commands.bench import command
from ollama_spec.errors import OllamaSpecError
from ollama_spec.measure import compare, matrix, report, sample
from ollama_spec.measure.client import Answer


def test_summary_pairs_with_the_baseline() -> None:
    plain, strict = result()["summary"]
    assert plain["verdict"] == "baseline"
    assert strict["speed_ratio"]["value"] == 2
    assert strict["verdict"] == "faster"
    assert strict["acceptance"] == 12 / 20
    assert strict["acceptance_length"] == 1 + 12 / 10
    assert strict["accepted_per_position"] == [1.0, 0.2]
    assert strict["prefill_tokens_per_second"] == 500


def test_rounds_follow_from_a_stock_servers_counts() -> None:
    answer = Answer("", 22, 0.1, 1, {"draft_n": 20, "draft_n_accepted": 11})
    # 22 tokens: one from the prompt, 11 accepted, so 10 rounds brought one of their own each.
    assert sample.acceptance_length([sample.row(answer)]) == 1 + 11 / 10


def test_decoding_took_no_less_than_the_server_says() -> None:
    # Seen on a machine with load 19: all of an answer arrived in one read.
    late = Answer("", 32, ttft=0.030, total=0.0306, timings={"predicted_ms": 16.0})
    assert sample.row(late)["decode_ms"] == pytest.approx(15.5)
    slow_network = Answer("", 32, ttft=0.030, total=0.130, timings={"predicted_ms": 16.0})
    assert sample.row(slow_network)["decode_ms"] == pytest.approx(100)


def test_csv_has_a_line_per_answer() -> None:
    lines = list(csv.DictReader(io.StringIO(report.as_csv(result()))))
    assert len(lines) == 16
    assert lines[0]["config"] == "plain" and "text" not in lines[0]


def test_columns_without_values_are_left_out() -> None:
    text = report.markdown(result())
    assert "J/token" not in text and "sparse prefill" not in text
    assert "| 1.00, 0.20 |" in text  # accepted at positions 1 and 2 of 10 rounds
    assert "TTFT gain" in text


def test_markdown_says_when_there_is_no_difference() -> None:
    assert "no difference" in report.markdown(result(strict_seconds=2.0))


class Page(html.parser.HTMLParser):
    """Collects what an accessibility lint asks for, and anything that would need a network."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.ids: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.tags.append((tag, values))
        if values.get("id"):
            self.ids.append(str(values["id"]))

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [values for name, values in self.tags if name == tag]


def test_page_needs_no_network_and_is_accessible() -> None:
    text = report.html(result())
    page = Page(text)
    assert "chat &amp; &lt;code&gt;" in text
    assert "chat & <code>" not in text
    for word in ("http://", "https://", "<script", "<link", "<img", "url("):
        assert word not in text
    (root,) = page.all("html")
    assert root["lang"] == "en"
    assert len(page.all("h1")) == len(page.all("main")) == len(page.all("title")) == 1
    assert all(svg["role"] == "img" and svg["aria-label"] for svg in page.all("svg"))
    assert all(cell["scope"] in ("row", "col") for cell in page.all("th"))
    assert len(page.ids) == len(set(page.ids))
    for _, values in page.tags:
        assert values.get("aria-labelledby", page.ids[0]) in page.ids


def test_compare_names_what_became_faster(tmp_path: Path) -> None:
    before, after = tmp_path / "before.json", tmp_path / "after.json"
    before.write_text(json.dumps(result(1.0)))
    after.write_text(json.dumps(result(0.5)))
    lines = compare.compare(compare.load(before), compare.load(after))
    assert {line["config"]: line["verdict"] for line in lines} == {
        "plain": "no difference",
        "strict": "faster",
    }
    strict = next(line for line in lines if line["config"] == "strict")
    assert [one["value"] for one in strict["vs_baseline"]] == [2, 4]
    assert strict["ttft_verdict"] == "no difference"


def test_compare_says_which_first_token_came_sooner(tmp_path: Path) -> None:
    files = []
    for name, factor in (("before", 1.0), ("after", 0.5)):
        found = result()
        for row in found["rows"]:
            busy = 1 + row["repeat"] / 10
            row["ttft_ms"] *= busy * (factor if row["config"] == "strict" else 1)
        found["summary"] = matrix.summarise(found["rows"], "plain")
        files.append(tmp_path / name)
        files[-1].write_text(json.dumps(found))
    plain, strict = compare.compare(*map(compare.load, files))
    assert plain["ttft_verdict"] == "no difference"
    assert strict["ttft_verdict"] == "faster"
    assert strict["ttft_gain"]["value"] == 2
    assert strict["ttft_ms"] == pytest.approx([105, 52.5])
    assert [one["value"] for one in strict["ttft_vs_baseline"]] == [1, 2]
    done = CliRunner().invoke(command, ["--compare", *map(str, files)])
    assert done.exit_code == 0, done.output
    sooner = [line for line in done.output.splitlines() if "TTFT" in line and "faster" in line]
    assert [line.split()[6:8] for line in sooner] == [["105", "52"]]


@pytest.mark.parametrize("text", ["{", "[]", '{"format": 2}', '{"format": 1, "rows": []}'])
def test_other_files_are_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(OllamaSpecError, match="not a result"):
        compare.load(path)
