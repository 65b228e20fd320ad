"""Whether an input can be sent at all."""

from collections.abc import Mapping
from typing import Any

from appliance.core.database import db
from appliance.core.errors import ValidationFailed
from appliance.core.sentences import Sentence


def check_sendable(given: Mapping[str, Any]) -> None:
    """ValidationFailed for what JSON or UTF-8 cannot hold: NaN, half of a surrogate pair."""
    try:
        db.dump_json(dict(given)).encode()
    except (ValueError, TypeError, RecursionError) as error:
        raise ValidationFailed(
            Sentence("the input is not JSON that can be sent: %(error)s", error=error), pointer="/input"
        ) from error
