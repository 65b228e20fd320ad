"""Checks that an input can be serialized."""

from collections.abc import Mapping
from typing import Any

from appliance.core.database import db
from appliance.core.errors import ValidationFailed
from appliance.core.sentences import Sentence


def check_serializable(values: Mapping[str, Any]) -> None:
    """ValidationFailed for values that JSON or UTF-8 cannot represent: NaN, half of a surrogate pair."""
    try:
        db.dump_json(dict(values)).encode()
    except (ValueError, TypeError, RecursionError) as error:
        raise ValidationFailed(
            Sentence("the input cannot be sent as JSON: %(error)s", error=error), pointer="/input"
        ) from error
