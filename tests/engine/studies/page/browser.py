"""A real Chromium for the pages: the system's own, since the package brings only its driver."""

from collections.abc import Iterator
from pathlib import Path
from shutil import which
from typing import Any

import pytest

PATIENCE_MILLISECONDS = 180_000
PROGRAMS = ("chromium", "chromium-browser", "google-chrome")


def program() -> str | None:
    """The first Chromium on the path; None where there is none."""
    return next((found for name in PROGRAMS if (found := which(name))), None)


class Opened:
    """A page that was opened from disk, and all that it complained of or asked for."""

    def __init__(self, browser: Any, file: Path, **options: Any) -> None:
        self.context = browser.new_context(**{"viewport": {"width": 1300, "height": 900}, **options})
        # A machine that is busy with other things may need long for what takes milliseconds.
        self.context.set_default_timeout(PATIENCE_MILLISECONDS)
        self.page = self.context.new_page()
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda said: self.complaints.append(said.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", lambda dialog: self.complaints.append(f"dialog {dialog.message}"))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.failures: list[str] = []
        self.page.on("requestfailed", lambda request: self.failures.append(request.failure))
        self.page.goto(file.as_uri())
        self.page.wait_for_selector("body[data-drawn]")

    def press(self, *keys: str) -> None:
        """Press keys one after the other."""
        for key in keys:
            self.page.keyboard.press(key)

    def text(self, selector: str) -> str:
        """The text that a person sees there."""
        return str(self.page.inner_text(selector))


def started() -> Iterator[Any]:
    """A browser, for as long as a module's tests run; skips them where no Chromium is installed."""
    found = program()
    if found is None:
        pytest.skip("no Chromium on this machine: apt-get install chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield browser
        browser.close()
