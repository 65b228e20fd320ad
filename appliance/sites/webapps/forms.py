"""The fields of a small form that a page of ours has sent."""

from urllib.parse import parse_qsl

from appliance.core.errors import PayloadTooLarge
from appliance.core.sentences import Sentence
from appliance.sites.front.answers import Receive

MOST_FIELDS = 20


async def read_form(receive: Receive, most: int) -> dict[str, str]:
    """The first of each name, of at most `most` bytes together; PayloadTooLarge, and empty for what is no form."""
    body, more = bytearray(), True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            break
        body += message.get("body", b"")
        more = message.get("more_body", False)
        if len(body) > most:
            raise PayloadTooLarge(Sentence("a form has at most %(most)s KiB", most=most >> 10), headers={"Connection": "close"})
    try:
        pairs = parse_qsl(body.decode("utf8"), keep_blank_values=True, max_num_fields=MOST_FIELDS)
    except ValueError:
        return {}
    return dict(reversed(pairs))
