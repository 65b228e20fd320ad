"""Ownership of a bucket: a marker object names the installation, written by the first one that uses the bucket."""

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError
from obstore.store import S3Store

from appliance.core.errors import ApplianceError
from appliance.core.sentences import Sentence

MARKER = "gos-installation"  # cannot be the place of a content, because those have slashes
_MOST_READ = 200
# Parts of the errors of servers that do not support conditional writes.
_NO_CONDITION = ("501 ", "NotImplemented")


class BucketNotOwned(ApplianceError):
    """The bucket, or the prefix in it, belongs to another installation, which would delete this one's contents."""

    code, status = "bucket_taken", 503


def read_marker(bucket: S3Store) -> str | None:
    """The installation that owns the bucket; None when it has no owner yet."""
    try:
        return bytes(obstore.get(bucket, MARKER).bytes())[:_MOST_READ].decode("ascii", "replace").strip()
    except FileNotFoundError:
        return None


def claim(bucket: S3Store, installation: str) -> None:
    """Claims the bucket for this installation or confirms that it owns it; raises BucketNotOwned.

    Of two concurrent claims the server accepts one.  A server without conditional writes accepts both and keeps the later
    one; therefore the bucket is claimed again before anything is deleted.
    """
    owner = read_marker(bucket)
    if owner is None:
        _write(bucket, installation)
        owner = read_marker(bucket)
    if owner != installation:
        raise BucketNotOwned(Sentence(
            "the bucket belongs to another installation: its object %(marker)s (below blobs.prefix) says "
            "%(owner)s, this one is %(installation)s. Set blobs.bucket or blobs.prefix to a place of its own; to "
            "take over the bucket of an installation that no longer exists, delete that object and start again",
            marker=repr(MARKER), owner=owner, installation=installation,
        ))


def _write(bucket: S3Store, installation: str) -> None:
    content = f"{installation}\n".encode()
    try:
        obstore.put(bucket, MARKER, content, mode="create", use_multipart=False)
    except (AlreadyExistsError, PreconditionError):
        return
    except BaseError as error:
        if not any(word in str(error) for word in _NO_CONDITION):
            raise
        obstore.put(bucket, MARKER, content, use_multipart=False)
