"""Where a domain stands after a look at it; decisions alone, what they change is the caller's to write."""

from typing import cast

from .models import DomainRow
from .records import Settings, State


def state_of_proven(settings: Settings, row: DomainRow, *, leads_here: bool | None) -> State:
    """The state of a domain whose ownership is proven: verified until it leads here, then on to its certificate, or active
    where none is needed.  What has got further stays there."""
    if row.state == "active" or row.certificate_state is not None:
        return cast(State, row.state)
    if leads_here is False:
        return "verified"
    return "cert_pending" if settings.certificates else "active"
