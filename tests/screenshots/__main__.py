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
from tests.screenshots.furnishing import LOGIN, FurnishedTenant, furnish
from tests.screenshots.pages import REFUSED_FORMS, Screen, screens
from tests.screenshots.visitor import send_form, set_look, signed_in_context, url_of

SCHEMES, WIDTHS = ("light", "dark"), (390, 1280, 2560)


@contextmanager
def appliance() -> Iterator[Running]:
    """A running appliance in a temporary folder."""
    with tempfile.TemporaryDirectory() as folder:
        running = start(
            make_config(
                Path(folder), demo__order_system=True, egress__allow=["127.0.0.0/8"], console__administrators=[LOGIN],
                mail__server="smtp://127.0.0.1:9", mail__sender="gos@northgate.test",
            )
        )
        try:
            yield running
        finally:
            running.stop()


@dataclass(frozen=True)
class Selection:
    """What to take: pages, refused forms, widths, the language of the browser, and whether whole pages or their first screen."""

    screens: list[Screen]
    forms: list[bool]
    widths: list[int]
    language: str
    is_whole: bool


def take_pictures(house: FurnishedTenant, chromium: Browser, selection: Selection, folder: Path) -> int:
    """Take the pictures, each named after its page, scheme and width; returns their number."""
    config = house.running.config
    with signed_in_context(chromium, config) as signed_in:
        reader = chromium.new_context(storage_state=signed_in.storage_state(), locale=selection.language)
        stranger = chromium.new_context(locale=selection.language)
        pages = {True: reader.new_page(), False: stranger.new_page()}
        for screen in selection.screens:
            page = pages[screen.is_signed_in]
            _picture(page, selection, folder / screen.name, partial(page.goto, url_of(config, screen)))
        if selection.forms:
            show, form_values = partial(send_form, pages[False], house.running), {"id": "late", "name": "Late"}
            saved = {FIELD: show(form_values, house.things["ended"])}
            sent = {False: (form_values, house.things["ended"]), True: (saved, house.things["another"])}
            for form in selection.forms:
                _picture(pages[False], selection, folder / REFUSED_FORMS[form], partial(show, *sent[form]))
        for context in (reader, stranger):
            context.close()
    return (len(selection.screens) + len(selection.forms)) * len(SCHEMES) * len(selection.widths)


def _picture(page: Page, selection: Selection, path: Path, show: Callable[[], object]) -> None:
    for scheme in SCHEMES:
        for width in selection.widths:
            set_look(page, scheme, width)
            show()
            page.screenshot(path=f"{path}-{scheme}-{width}.png", full_page=selection.is_whole)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.screenshots", description=__doc__)
    parser.add_argument("folder", type=Path, help="folder of the pictures; created when missing")
    parser.add_argument("--only", default="", help="only pages whose name contains this")
    parser.add_argument("--widths", default=",".join(map(str, WIDTHS)), help="in pixels (default: %(default)s)")
    parser.add_argument("--language", default="en", help="language of the browser, such as de (default: %(default)s)")
    parser.add_argument("--first-screen", action="store_true", help="only what is visible without scrolling, as for the README")
    chosen = parser.parse_args()
    chosen.folder.mkdir(parents=True, exist_ok=True)
    with appliance() as running, sync_playwright() as playwright:
        house = furnish(running)
        selected = [screen for screen in screens(house.things) if chosen.only in screen.name]
        forms = [form for form, name in REFUSED_FORMS.items() if chosen.only in name]
        widths = [int(width) for width in chosen.widths.split(",")]
        selection = Selection(selected, forms, widths, chosen.language, is_whole=not chosen.first_screen)
        chromium = launch(playwright)
        count = take_pictures(house, chromium, selection, chosen.folder)
        chromium.close()
    print(f"{count} pictures of {len(selected) + len(forms)} pages in {chosen.folder}")


if __name__ == "__main__":
    main()
