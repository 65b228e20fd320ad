"""`python -m tests.screenshots FOLDER [--only PART]`: pictures of every page, light and dark, narrow, usual and wide."""

import argparse
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

from appliance.console.frame.saved_forms import FIELD
from appliance.testing.pages import launch
from appliance.testing.running import Running, make_config, start
from tests.screenshots.furnishing import LOGIN, Furnished, furnish
from tests.screenshots.pages import NOT_TAKEN, Screen, screens
from tests.screenshots.visitor import send_form, set_look, url_of, visiting

SCHEMES, WIDTHS = ("light", "dark"), (390, 1280, 2560)


@contextmanager
def appliance() -> Iterator[Running]:
    """One of its own, in a folder that goes when it ends."""
    with tempfile.TemporaryDirectory() as folder:
        running = start(
            make_config(Path(folder), demo__order_system=True, egress__allow=["127.0.0.0/8"], console__administrators=[LOGIN])
        )
        try:
            yield running
        finally:
            running.stop()


@dataclass(frozen=True)
class Wanted:
    """Which pictures: of these pages and these forms that are not taken, as wide as this, by a browser that asks for this
    language."""

    screens: list[Screen]
    forms: list[bool]
    widths: list[int]
    language: str


def take(house: Furnished, chromium: Browser, wanted: Wanted, folder: Path) -> int:
    """The pictures, each named by its page, scheme and width; answers how many."""
    config = house.running.config
    with visiting(chromium, config) as known:
        reader = chromium.new_context(storage_state=known.storage_state(), locale=wanted.language)
        stranger = chromium.new_context(locale=wanted.language)
        pages = {True: reader.new_page(), False: stranger.new_page()}
        for screen in wanted.screens:
            page = pages[screen.is_signed_in]
            _picture(page, wanted, folder / screen.name, partial(page.goto, url_of(config, screen)))
        if wanted.forms:
            show, told = partial(send_form, pages[False], house.running), {"id": "late", "name": "Late"}
            kept = {FIELD: show(told, house.things["ended"])}
            sent = {False: (told, house.things["ended"]), True: (kept, house.things["another"])}
            for form in wanted.forms:
                _picture(pages[False], wanted, folder / NOT_TAKEN[form], partial(show, *sent[form]))
        for context in (reader, stranger):
            context.close()
    return (len(wanted.screens) + len(wanted.forms)) * len(SCHEMES) * len(wanted.widths)


def _picture(page: Page, wanted: Wanted, path: Path, show: Callable[[], object]) -> None:
    for scheme in SCHEMES:
        for width in wanted.widths:
            set_look(page, scheme, width)
            show()
            page.screenshot(path=f"{path}-{scheme}-{width}.png", full_page=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.screenshots", description=__doc__)
    parser.add_argument("folder", type=Path, help="where the pictures go; made when it is not there")
    parser.add_argument("--only", default="", help="pages whose name holds this alone")
    parser.add_argument("--widths", default=",".join(map(str, WIDTHS)), help="in pixels (default: %(default)s)")
    parser.add_argument("--language", default="en", help="what the browser asks for, such as de (default: %(default)s)")
    chosen = parser.parse_args()
    chosen.folder.mkdir(parents=True, exist_ok=True)
    with appliance() as running, sync_playwright() as playwright:
        house = furnish(running)
        found = [screen for screen in screens(house.things) if chosen.only in screen.name]
        forms = [form for form, name in NOT_TAKEN.items() if chosen.only in name]
        wanted = Wanted(found, forms, [int(width) for width in chosen.widths.split(",")], chosen.language)
        chromium = launch(playwright)
        count = take(house, chromium, wanted, chosen.folder)
        chromium.close()
    print(f"{count} pictures of {len(found) + len(forms)} pages in {chosen.folder}")


if __name__ == "__main__":
    main()
