"""/api/v1/keys/{key_id}/addresses: the addresses that an API key was used from."""

from typing import Annotated

from pydantic import Field

from appliance.api.frame.routing import Call, ListQuery, View, route
from appliance.core import clock
from appliance.core.pages import Page
from appliance.tenants.keys import key_addresses, keys


class KeyAddressView(View):
    """An address that a key was used from."""

    address: Annotated[str, Field(description="An IPv4 address, or the /64 network of an IPv6 address.")]
    first_at: Annotated[str, Field(description="When the key was first used from it; RFC 3339, UTC.")]
    last_at: Annotated[str, Field(description="When it was last used from it, exact to a day; RFC 3339, UTC.")]


@route("GET", "/keys/{key_id}/addresses", scope="keys.read", query=ListQuery, returns=KeyAddressView, listed=True)
def list_key_addresses(call: Call, key_id: str) -> Page[KeyAddressView]:
    """List the addresses of an API key.

    They are those that it, and the keys that it was rotated from, were used from: at most 50, the newest first. An address is
    forgotten `retention.key_addresses_days` after its last use.
    """
    row = keys.get_key(call.scope, key_id)
    rows = key_addresses.list_addresses(call.scope, row, call.query.page)
    return rows.map(
        lambda each: KeyAddressView(
            address=each.address, first_at=clock.rfc3339(each.first_at), last_at=clock.rfc3339(each.last_at)
        )
    )  # fmt: skip
