"""The location of the templates, static files and scripts of the user interface."""

from pathlib import Path


def ui_folder() -> Path:
    """The `ui` folder: inside the package in a wheel, next to it in a checkout."""
    package = Path(__file__).parents[1]
    return package / "ui" if (package / "ui").is_dir() else package.parent / "ui"
