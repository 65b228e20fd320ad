"""What a caller is told about an exception that has no code of its own."""

import json
import logging

import pytest

from appliance.core.database.losses import ConnectionLost
from appliance.web import error_response


@pytest.mark.parametrize(
    ("error", "status", "code", "level"),
    [
        (ConnectionLost(OSError("gone"), is_committing=True), 503, "outcome_unknown", logging.WARNING),
        (ConnectionLost(OSError("gone")), 503, "overloaded", logging.WARNING),
        (OSError("a secret of the machine"), 500, "internal", logging.ERROR),
    ],
)
def test_an_exception_is_coded_and_logged(
    error: Exception, status: int, code: str, level: int, caplog: pytest.LogCaptureFixture
) -> None:
    response = error_response(error, "req_1")
    assert (response.status, json.loads(response.body)["error"]["code"]) == (status, code)
    assert ("Retry-After" in response.headers) == (status == 503)
    assert b"secret" not in response.body
    assert [(record.levelno, bool(record.exc_info)) for record in caplog.records] == [(level, level == logging.ERROR)]
