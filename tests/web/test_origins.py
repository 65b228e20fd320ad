"""Only forms of the appliance's own pages are accepted."""

import pytest

from appliance.web import is_own_page

ORIGIN = "https://acme.example.com"


@pytest.mark.parametrize(
    "headers",
    [
        {"sec-fetch-site": "same-origin"},
        {"sec-fetch-site": "none"},
        {"sec-fetch-site": "same-origin", "origin": "null"},
        {"origin": "https://acme.example.com"},
        {"origin": "https://ACME.example.com"},
    ],
)
def test_a_form_of_the_same_origin_is_accepted(headers: dict[str, str]) -> None:
    assert is_own_page(headers, ORIGIN)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"sec-fetch-site": "cross-site", "origin": ORIGIN},
        {"origin": "null"},
        {"origin": "https://evil.example.com"},
        {"origin": "http://acme.example.com"},
        {"origin": "https://acme.example.com.evil.com"},
        {"referer": ORIGIN},
    ],
)
def test_a_form_of_another_origin_is_refused(headers: dict[str, str]) -> None:
    assert not is_own_page(headers, ORIGIN)
