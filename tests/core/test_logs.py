"""The process's own log: structured, with its context, without secrets."""

import json
import logging
from collections.abc import Iterator

import pytest

from appliance.core import logs

SECRET = "tok-4711-very-secret"


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level, secrets = list(root.handlers), root.level, logs._secrets
    logs.remember_secret(SECRET)
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logs._secrets = secrets


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().err.splitlines()


def test_a_record_is_one_json_object_with_its_context(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure_logs("info", "json")
    with logs.log_context(request_id="req_1"), logs.log_context(execution_id="exe_1", step=""):
        logging.getLogger("appliance.processes").warning("late\nby %d s", 5, extra={"fields": {"n": 1}})
    logging.getLogger("appliance.processes").info("outside")
    first, second = (json.loads(line) for line in lines(capsys))
    assert {name: first[name] for name in first if name != "at"} == {
        "level": "warning", "source": "processes", "message": "late\nby 5 s", "request_id": "req_1",
        "execution_id": "exe_1", "n": 1,
    }  # fmt: skip
    assert "request_id" not in second


@pytest.mark.parametrize("form", ["json", "text"])
def test_an_opened_secret_never_reaches_the_log(capsys: pytest.CaptureFixture[str], form: str) -> None:
    logs.configure_logs("info", form)
    log = logging.getLogger("appliance.x")
    with logs.log_context(request_id=f"a{SECRET}b"):
        log.error("token %s", SECRET, extra={"fields": {SECRET: [SECRET]}})
        try:
            raise ValueError(f"bad {SECRET}")
        except ValueError:
            log.exception("failed")
    text = capsys.readouterr().err
    assert "ValueError" in text
    assert SECRET not in text
    assert text.count("[redacted]") >= 5


def test_a_secret_that_json_would_write_otherwise_is_redacted(capsys: pytest.CaptureFixture[str]) -> None:
    secret = 'pass"word\\with\nlines'
    logs.remember_secret(secret)
    logs.configure_logs("info", "json")
    logging.getLogger("appliance.x").error("it is %s", secret)
    assert "[redacted]" in capsys.readouterr().err


def test_of_more_secrets_than_are_remembered_the_last_used_are_redacted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "MOST_SECRETS", 20)
    monkeypatch.setattr(logs, "_secrets", {})
    for number in range(100):
        logs.remember_secret("in use all the time")
        logs.remember_secret(f"token-{number:05}")
    assert logs.redact("token-00099, in use all the time, token-00000") == "[redacted], [redacted], token-00000"


def test_a_secret_that_begins_like_another_is_redacted_whole() -> None:
    logs.remember_secret("sesame")
    logs.remember_secret("sesame-and-more")
    logs.remember_secret("sesame-and")
    assert logs.redact("sesame-and-more sesame-and sesame") == "[redacted] [redacted] [redacted]"


def test_very_short_secrets_do_not_mangle_text() -> None:
    logs.remember_secret("the")
    assert logs.redact("the end") == "the end"


def test_below_the_level_nothing_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure_logs("warning", "text")
    logging.getLogger("appliance.x").info("quiet")
    assert lines(capsys) == []
