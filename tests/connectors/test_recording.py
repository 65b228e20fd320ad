"""Recorded exchanges contain no secret, and a replay reports requests that were not recorded or not sent."""

import base64
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from appliance.connectors.contract import HttpRequest
from appliance.connectors.recording import (
    FixtureInvalid,
    Player,
    Recorder,
    Recording,
    ReplayFailed,
    Scrubber,
    read_recording,
    write_recording,
)
from appliance.connectors.testing import Answer, LoopbackServer, open_context

SECRET = "canary/5d 41+é"
SCHEMA: dict[str, Any] = {"properties": {"url": {"type": "string"}, "token": {"type": "string", "secret": True}}}


@pytest.fixture
def server() -> Iterator[LoopbackServer]:
    server = LoopbackServer()
    yield server
    server.close()


def recorded(server: LoopbackServer, tmp_path: Path, *requests: HttpRequest) -> Path:
    settings = {"url": server.url, "token": SECRET}
    scrubber = Scrubber([SECRET])
    with open_context() as ctx:
        recorder = Recorder(ctx.http, scrubber)
        for request in requests:
            recorder.send(request)
    file = tmp_path / "recording.json"
    write_recording(file, Recording(scrubber.json(settings), recorder.exchanges), [SECRET])
    return file


def test_no_secret_reaches_the_file(server: LoopbackServer, tmp_path: Path) -> None:
    hidden = base64.b64encode(f"user:{SECRET}".encode()).decode()
    answer = {
        "echo": SECRET, "access_token": "issued-just-now", "link": "/x?sig=abcdef&page=2", "b": hidden, "error": {"code": "A"},
    }  # fmt: skip
    server.answers["/a"] = lambda _: Answer(
        200, {"Set-Cookie": "session=1", "Content-Type": "application/json"}, json.dumps(answer).encode()
    )
    ask = HttpRequest("POST", f"{server.url}/a", [("Authorization", f"Basic {hidden}")], [("key", SECRET)], SECRET.encode())
    text = recorded(server, tmp_path, ask).read_text("utf-8")
    for leak in ("canary", "5d 41", "5d%2041", "5d+41", "issued-just-now", "abcdef", "session=1", hidden[12:-6]):
        assert leak not in text, leak
    recorded_body = json.loads(text)["exchanges"][0]["answer"]["body"]["json"]
    assert (recorded_body["error"]["code"], recorded_body["link"]) == ("A", "/x?sig=[redacted]&page=2")


def test_a_replay_answers_in_any_order_and_as_often_as_recorded(server: LoopbackServer, tmp_path: Path) -> None:
    for path, body in (("/a", b'{"n": 1}'), ("/b", b"text"), ("/c", b"\xff\x00")):
        server.answer(path, 200, body, Retry_After="3")
    requests = [HttpRequest("GET", f"{server.url}{path}", params=[("key", SECRET), ("q", "1")]) for path in ("/a", "/b", "/c")]
    file = recorded(server, tmp_path, *requests)
    recording = read_recording(file, SCHEMA, [SECRET])
    assert recording.usable_settings() == {"url": server.url, "token": "made-up-secret-of-token"}
    player = Player(recording, SCHEMA)
    again = [
        HttpRequest("get", f"{server.url}{path}", params=[("q", "1"), ("key", "made-up-secret-of-token")]) for path in ("/c", "/a")
    ]
    assert [player.send(ask).content for ask in again] == [b"\xff\x00", b'{"n": 1}']
    assert player.send(replace(requests[1], params=again[0].params)).headers == {"retry-after": "3"}
    player.check_all_used()
    with pytest.raises(ReplayFailed, match="more often than it is recorded"):
        player.send(again[0])


def test_an_unrecorded_request_is_shown_with_the_nearest_recorded_one(server: LoopbackServer, tmp_path: Path) -> None:
    server.answer("/a", 200, b"{}")
    file = recorded(server, tmp_path, HttpRequest("POST", f"{server.url}/a", content=b'{"name": "bolt"}'))
    player = Player(read_recording(file, SCHEMA), SCHEMA)
    with pytest.raises(ReplayFailed) as caught:
        player.send(HttpRequest("POST", f"{server.url}/a", content=b'{"name": "nut"}'))
    assert '-  "name": "bolt"' in str(caught.value)
    assert '+  "name": "nut"' in str(caught.value)
    with pytest.raises(ReplayFailed, match=r"were not sent(.|\n)*POST .*/a"):
        player.check_all_used()


def test_a_secret_too_short_to_scrub_is_not_recorded(tmp_path: Path) -> None:
    with pytest.raises(FixtureInvalid, match="test account"):
        write_recording(tmp_path / "r.json", Recording({"token": "abc"}), ["abc"])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"settings": {"token": "real-token"}, "exchanges": []}, "/token"),
        (
            {"settings": {}, "exchanges": [{"request": {"method": "GET", "url": "/?token=abc"}, "answer": {"status": 200}}]},
            "/exchanges/0",
        ),
        (
            {
                "settings": {},
                "exchanges": [
                    {"request": {"method": "GET", "url": "/"}, "answer": {"status": 200, "body": {"json": {"password": "x"}}}}
                ],
            },
            "/exchanges/0",
        ),
        (
            {
                "settings": {},
                "exchanges": [
                    {"request": {"method": "GET", "url": "/", "body": {"form": {"client_secret": ["x"]}}}, "answer": {"status": 1}}
                ],
            },
            "/exchanges/0",
        ),
        ({"settings": {"url": f"http://{SECRET}"}, "exchanges": []}, "some place"),
        ({"settings": {}, "exchanges": [{}]}, "no recording"),
        ({"settings": {}, "exchanges": [], "format": 2}, "format 2"),
    ],
)
def test_a_recording_with_a_secret_or_an_invalid_one_is_refused(tmp_path: Path, data: dict[str, Any], message: str) -> None:
    file = tmp_path / "recording.json"
    file.write_text(json.dumps({"format": 1, **data}))
    with pytest.raises(FixtureInvalid, match=message):
        read_recording(file, SCHEMA, [SECRET])
