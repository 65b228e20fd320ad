"""Opens the database of an installation to look at it, without creating or migrating anything."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from appliance.core.config import Config
from appliance.core.crypto import has_keys
from appliance.core.database import db
from appliance.core.errors import ConfigInvalid
from appliance.core.sentences import Sentence


@contextmanager
def inspected_store(config: Config) -> Iterator[None]:
    """Open the database with whatever schema it has, without creating or migrating anything.  ConfigInvalid if there is none."""
    refuse_empty(config)
    file = Path(config.database_url.removeprefix("sqlite:///"))
    if config.database_url.startswith("sqlite:///") and not file.exists():
        raise ConfigInvalid(
            Sentence("there is no database %(file)s; restore a backup with `gos restore`, or start with `gos init`", file=str(file))
        )
    db.open_database(config.database_url)
    try:
        yield
    finally:
        db.close_database()


def refuse_empty(config: Config) -> None:
    """ConfigInvalid if the data folder has no data of an appliance."""
    if not (config.data.is_dir() and has_keys(config)):
        raise ConfigInvalid(
            Sentence("%(data)s has no appliance data; set the folder with --data, or start with `gos init`", data=str(config.data))
        )
