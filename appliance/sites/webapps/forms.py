"""Parses small forms of our own pages."""

from urllib.parse import parse_qsl

from appliance.core.errors import PayloadTooLarge
from appliance.core.sentences import Sentence
from appliance.web import Request, read_body

MOST_FIELDS = 20


async def read_form(request: Request, max_bytes: int) -> dict[str, str]:
    """The fields of a form of at most `max_bytes`, the first value of each name; PayloadTooLarge, and empty for an invalid
    form."""
    message = Sentence("the form exceeds %(most)s KiB", most=max_bytes >> 10)
    body = await read_body(request.pieces, max_bytes, PayloadTooLarge(message, headers={"Connection": "close"}), drain=0)
    try:
        pairs = parse_qsl(body.decode("utf8"), keep_blank_values=True, max_num_fields=MOST_FIELDS)
    except ValueError:
        return {}
    return dict(reversed(pairs))
