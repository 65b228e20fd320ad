"""Durations in settings, such as 24h."""

from appliance.core import clock
from appliance.core.errors import ConfigInvalid, ValidationFailed
from appliance.core.sentences import Sentence


def check_duration(name: str, text: str) -> int:
    """Parse the duration in a setting; returns milliseconds."""
    try:
        return clock.parse_duration(text)
    except ValidationFailed as error:
        raise ConfigInvalid(Sentence("%(name)s: %(message)s", name=name, message=error.message)) from error
