"""The page of log lines: filters are part of its address, and new lines are streamed to it exactly once."""

import json
import re
from collections.abc import Callable
from urllib.parse import urlsplit

import httpx
import pytest

from tests.console.browser import Browser


@pytest.fixture(scope="module")
def greet(acme: httpx.Client, greeting: str) -> Callable[[str], str]:
    """Run the greeting process for a guest, which writes a log line; returns the execution's id."""

    def execute(guest: str) -> str:
        answer = acme.post(f"/api/v1/processes/{greeting}/execute?wait=20", json={"guest": guest}).json()["data"]
        return str(answer["execution_id"])

    return execute


def follow(
    browser: Browser, address: str, count: int, after: str = "", do: Callable[[], object] | None = None
) -> list[tuple[int, str]]:
    """The next `count` events of a page's stream; `do` happens once it is open."""
    parts = urlsplit(address)
    cookies = "; ".join(f"{name}={value}" for name, value in browser.cookies[parts.netloc].items())
    headers = {"Host": parts.netloc, "Cookie": cookies} | ({"Last-Event-ID": after} if after else {})
    target, number = f"http://127.0.0.1:{browser.running.config.server.port}{parts.path}?{parts.query}", 0
    events: list[tuple[int, str]] = []
    with httpx.Client(trust_env=False, timeout=30) as client, client.stream("GET", target, headers=headers) as stream:
        assert (stream.status_code, stream.headers["Content-Type"]) == (200, "text/event-stream")
        for line in stream.iter_lines():
            if line == ": connected" and do is not None:
                do()
            if line.startswith("id: "):
                number = int(line.removeprefix("id: "))
            if line.startswith("data: "):
                events.append((number, json.loads(line.removeprefix("data: "))))
            if len(events) == count:
                break
    return events


def tail_of(browser: Browser, query: str) -> str:
    """The address of the stream that the page with this query follows."""
    page = browser.get(browser.at("acme", f"/console/logs?follow=1&{query}")).text
    (path,) = re.findall(r'data-tail="([^"]+)"', page)
    return browser.at("acme", path.replace("&amp;", "&"))


def test_lines_are_filtered_by_words_level_source_and_time(owner: Browser, greet: Callable[[str], str]) -> None:
    execution = greet("Wilhelmina")
    for query in (
        "text=WILHEL", "text=greeting+wilhelmina&level=info", "source=step&text=wilhelmina", f"text={execution}",
        f"execution={execution}&span=1h", "text=wilhelmina&since=2020-01-01T00:00", "process=greeting&text=wilh",
    ):  # fmt: skip
        assert "greeting Wilhelmina" in owner.get(owner.at("acme", f"/console/logs?{query}")).text, query
    for query in (
        "text=ilhelmina", "text=wilhelmina&level=warn", "text=wilhelmina&source=process",
        "text=wilhelmina&since=2019-01-01T00:00&until=2020-01-01T00:00",
    ):  # fmt: skip
        assert "No lines match" in owner.get(owner.at("acme", f"/console/logs?{query}")).text, query
    page = owner.get(owner.at("acme", "/console/logs?text=wilhelmina&level=info&span=24h")).text
    assert 'value="wilhelmina"' in page
    assert '<option value="24h" selected>' in page
    assert "follow=1" in page
    assert owner.get(owner.at("acme", "/console/logs?span=3y")).status_code == 400
    assert owner.get(owner.at("acme", "/console/logs?text=%25")).status_code == 400


def test_new_lines_are_streamed_and_an_interrupted_stream_resumes(owner: Browser, greet: Callable[[str], str]) -> None:
    address = tail_of(owner, "text=greeting&source=step")
    lines = follow(owner, address, 2, do=lambda: [greet("Grace"), greet("<Edsger>")])
    assert "greeting Grace" in lines[0][1]
    assert "greeting &lt;Edsger&gt;" in lines[1][1]
    assert f'data-number="{lines[1][0]}"' in lines[1][1]
    greet("Barbara")
    again = follow(owner, address, 2, after=str(lines[0][0]))
    assert again[0] == lines[1]
    assert "greeting Barbara" in again[1][1]


def test_a_stream_needs_a_session_and_a_valid_cursor(owner: Browser, greet: Callable[[str], str]) -> None:
    address = tail_of(owner, "")
    assert owner.get(address.replace("after=", "after=x")).status_code == 400
    assert Browser(owner.running).get(address).status_code == 401
