"""Frames and source maps."""

from __future__ import annotations

import json
import socket
import threading

import pytest

from appliance.sandbox.compilation.artefact import Artefact, Module, resolve
from appliance.sandbox.compilation.sourcemap import SourceMap
from appliance.sandbox.wire import Channel, Disconnected, pack, unpack
from appliance.sandbox.worker.programs import Artefacts
from appliance.sandbox.worker.visit import DEPTH, tidy_json


def pair() -> tuple[Channel, Channel]:
    one, other = socket.socketpair()
    return Channel(one), Channel(other)


def test_a_frame_arrives_as_it_was_sent() -> None:
    one, other = pair()
    parts = [b"", b"x" * 300_000, bytes(range(256))]
    sender = threading.Thread(target=one.send, args=({"op": "run", "n": [1, None, "ä"]}, *parts))
    sender.start()
    header, received = other.receive()
    sender.join()
    assert (header["op"], header["n"], received) == ("run", [1, None, "ä"], parts)
    one.close()
    other.close()


@pytest.mark.parametrize("data", [b"", b"\0\0", b"\x7f\xff\xff\xff????", b"\0\0\0\x06\0\0\0\x02{]", b"\0\0\0\x06\0\0\0\x02[]"])
def test_a_malformed_frame_disconnects(data: bytes) -> None:
    one, other = socket.socketpair()
    one.sendall(data)
    one.close()
    with pytest.raises(Disconnected):
        Channel(other).receive()
    other.close()


def test_headers_nested_beyond_measure_disconnect() -> None:
    text = b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    with pytest.raises(Disconnected):
        unpack(len(text).to_bytes(4, "big") + text)


def test_a_frame_without_parts_is_small() -> None:
    assert len(pack({"op": "end"})) == 8 + len('{"op":"end"}')


def test_a_source_map_leads_back() -> None:
    # two generated lines; on the first, columns 0 and 9 come from (0, 4) and (2, 0); on the second, column 0 from (3, 1)
    source_map = SourceMap(json.dumps({"version": 3, "mappings": "AAAI,SAEJ;AACC"}))
    assert source_map.original(1, 1) == (1, 5)
    assert source_map.original(1, 9) == (1, 5)
    assert source_map.original(1, 10) == (3, 1)
    assert source_map.original(2, 7) == (4, 2)
    assert source_map.original(3, 1) is None


@pytest.mark.parametrize(
    ("specifier", "expected"),
    [
        ("./b", "steps/b.ts"),
        ("./b.js", "steps/b.ts"),
        ("./c.js", "steps/c.js"),
        ("../rules/x.json", "rules/x.json"),
        ("./../steps/./b.ts", "steps/b.ts"),
        ("./nothing", "steps/nothing"),
        ("fs", "fs"),
        ("/steps/b.ts", "/steps/b.ts"),
        ("../../etc/passwd", "../etc/passwd"),
    ],
)
def test_imports_are_resolved_within_the_program(specifier: str, expected: str) -> None:
    assert resolve(["steps/a.ts", "steps/b.ts", "steps/c.js", "rules/x.json"], "steps/a.ts", specifier) == expected


@pytest.mark.parametrize(("depth", "fits"), [(DEPTH, True), (DEPTH + 1, False), (100_000, False)])
def test_json_nested_too_deeply_is_refused(depth: int, fits: bool) -> None:
    raw = b"[" * depth + b"]" * depth
    if fits:
        assert tidy_json(raw) is raw
    else:
        with pytest.raises(RecursionError):
            tidy_json(raw)


@pytest.mark.parametrize("raw", [b"NaN", b'{"a": Infinity}', b"undefined", b"", b"{}{}"])
def test_invalid_json_is_refused(raw: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        tidy_json(raw)


def test_wide_json_is_not_deep() -> None:
    raw = b"[" + b",".join([b'{"a":[1]}'] * 1000) + b"]"
    assert tidy_json(raw) is raw


def test_the_least_recently_used_program_is_evicted() -> None:
    cache: Artefacts[Artefact] = Artefacts(limit_bytes=250)
    for name in "abc":
        cache.put(name, Artefact({"m": Module("m", "x" * 100)}, "m"))
        cache.get("a")
    assert [cache.get(name) is not None for name in "abc"] == [True, False, True]
