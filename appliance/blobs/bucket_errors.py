"""Converts errors of a bucket into coded errors."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError

from appliance.core.errors import Overloaded, StorageFull
from appliance.core.sentences import Sentence

log = logging.getLogger(__name__)
BLOB_STORE = "the bucket of the blob store"
MAX_LOGGED = 300  # characters logged of a server's error
# Parts of error texts for which obstore has no exception classes, or not for every request.
_NO_BUCKET, _FORBIDDEN = "NoSuchBucket", ("401 Unauthorized", "403 Forbidden", "AccessDenied", "SignatureDoesNotMatch")
_FULL = ("QuotaExceeded", "InsufficientStorage", "StorageFull", "507 ")


@contextmanager
def remote_errors(bucket: str = BLOB_STORE) -> Iterator[None]:
    """Converts errors into coded errors, which call the bucket as given; a missing object remains FileNotFoundError."""
    try:
        yield
    except (FileNotFoundError, BaseError) as error:
        text = str(error)
        if _NO_BUCKET in text:
            raise refused(f"{bucket} does not exist", error) from error
        if isinstance(error, FileNotFoundError):
            raise
        if any(word in text for word in _FULL):
            raise StorageFull("the bucket is full; free space in it and try again") from error
        if isinstance(error, PermissionDeniedError | UnauthenticatedError) or any(word in text for word in _FORBIDDEN):
            raise refused(f"{bucket} refuses the appliance", error) from error
        raise refused(f"{bucket} cannot be reached or failed", error) from error


def refused(what: str, error: Exception) -> Overloaded:
    """The error that says what is wrong with a bucket; the server's text is logged only."""
    log.error(what, extra={"fields": {"error": " ".join(str(error).split())[:MAX_LOGGED]}})
    return Overloaded(
        Sentence("%(what)s; try again later, or ask your operator to run `gos doctor`", what=what),
        headers={"Retry-After": "30"},
    )
