"""`python -m tests.screenshots.axe`: fetches the accessibility checker axe-core once, by the lock beside this file."""

from pathlib import Path

from tests.npm_packages import fetch_packages

LOCK = Path(__file__).with_name("axe-package")


def fetch_axe() -> str:
    """The source of axe-core, downloaded into the cache when missing."""
    return (fetch_packages(LOCK, "axe") / "axe-core" / "axe.min.js").read_text("utf8")


if __name__ == "__main__":
    fetch_axe()
