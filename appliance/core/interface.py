"""Where the templates, static files and scripts of the pages lie."""

from pathlib import Path


def ui_folder() -> Path:
    """Inside the package in a wheel, beside it in a checkout."""
    package = Path(__file__).parents[1]
    return package / "ui" if (package / "ui").is_dir() else package.parent / "ui"
