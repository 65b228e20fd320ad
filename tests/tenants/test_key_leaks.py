"""API keys are detected in public content, also across chunk boundaries."""

import pytest

from appliance.tenants.keys.key_leaks import contains_key
from appliance.tenants.keys.keys import make_key_text

KEY = make_key_text("live").encode()


@pytest.mark.parametrize("before", [b"", b"key=", b"x" * 300, b"gos_", b"gos_live_" + b"0" * 35])
@pytest.mark.parametrize("after", [b"", b"'", b"\n" * 300, b"_"])
def test_a_key_is_found_across_chunk_boundaries(before: bytes, after: bytes) -> None:
    text = before + KEY + after
    assert contains_key([text])
    for at in range(0, len(text) + 1, 3):
        assert contains_key([text[:at], text[at:]]), at
    assert contains_key(text[at : at + 1] for at in range(len(text)))
    assert contains_key([b"", *(text[at : at + 7] for at in range(0, len(text), 7)), b""])


def test_a_lookalike_is_not_reported() -> None:
    other = b"0" if KEY[-1:] != b"0" else b"1"
    for text in (KEY[:-1] + other, KEY[:-1], KEY.replace(b"gos_", b"sog_"), KEY.upper(), b"gos_live_" + b"0" * 36, b"", KEY + b"0"):
        assert not contains_key([text]), text
    assert not contains_key([KEY[:20], b"-", KEY[20:]])
    assert not contains_key([])
