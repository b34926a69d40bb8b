"""The report page in a browser: an accessibility lint (axe-core), and no wider than the screen."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from fixtures.measure_results import result
from playwright.sync_api import Browser, sync_playwright

from ollama_spec.measure import report

_NAMES = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM = next((path for name in _NAMES if (path := shutil.which(name))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        yield playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])


@pytest.mark.parametrize("colours", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 400])
def test_page_is_accessible_and_fits(
    browser: Browser, tmp_path: Path, width: int, colours: Any
) -> None:
    file = tmp_path / "report.html"
    file.write_text(report.html(result(prompt_tokens=4000)), encoding="utf-8")
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=colours)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(file.as_uri())
    assert asked == [file.as_uri()]
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.locator("svg").count() == 2
    found = Axe().run(page)
    assert found.violations_count == 0, found.generate_report()
    folder = os.environ.get("OLLAMA_SPEC_TEST_SCREENSHOTS")
    if folder:
        page.screenshot(path=Path(folder) / f"report-{width}-{colours}.png", full_page=True)
    page.close()


def test_the_lint_can_fail(browser: Browser, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    text = (
        report.html(result(prompt_tokens=4000)).replace('role="img"', "").replace('lang="en"', "")
    )
    file.write_text(text.replace("--ink: #1b1f24", "--ink: #eee"), encoding="utf-8")
    page = browser.new_page(color_scheme="light")
    page.goto(file.as_uri())
    rules = {item["id"] for item in Axe().run(page).response["violations"]}
    assert {"html-has-lang", "color-contrast"} <= rules
