"""Parses small forms of our own pages."""

from urllib.parse import parse_qsl

from appliance.core.errors import PayloadTooLarge
from appliance.core.sentences import Sentence
from appliance.sites.front.answers import Receive

MOST_FIELDS = 20


async def read_form(receive: Receive, max_bytes: int) -> dict[str, str]:
    """The fields of a form of at most `max_bytes`, the first value of each name; PayloadTooLarge, and empty for an invalid
    form."""
    body, more = bytearray(), True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            break
        body += message.get("body", b"")
        more = message.get("more_body", False)
        if len(body) > max_bytes:
            raise PayloadTooLarge(Sentence("the form exceeds %(most)s KiB", most=max_bytes >> 10), headers={"Connection": "close"})
    try:
        pairs = parse_qsl(body.decode("utf8"), keep_blank_values=True, max_num_fields=MOST_FIELDS)
    except ValueError:
        return {}
    return dict(reversed(pairs))
