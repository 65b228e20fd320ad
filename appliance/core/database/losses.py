"""The connection to the database server is lost while a statement runs."""

import peewee

from appliance.core.errors import ApplianceError, OutcomeUnknown, Overloaded

RETRY_SECONDS = "2"  # the value of Retry-After while the server is away


class ConnectionLost(peewee.OperationalError):  # type: ignore[misc]  # peewee carries no types
    """The changes of the transaction are undone, unless it `is_committing`: then nobody knows whether they are."""

    def __init__(self, error: Exception, *, is_committing: bool = False) -> None:
        super().__init__(error, str(error))  # peewee keeps the first one as `orig`.
        self.is_committing = is_committing

    def coded(self) -> ApplianceError:
        """The error for whoever asked."""
        if self.is_committing:
            return OutcomeUnknown(
                "the connection to the database was lost while a change was stored, and it is not known whether it was: look, "
                "or repeat the request with the same Idempotency-Key",
                headers={"Retry-After": RETRY_SECONDS},
            )
        return Overloaded("the connection to the database was lost; try again in a moment", headers={"Retry-After": RETRY_SECONDS})
