"""Whose bucket it is: a marker object that names the installation, written by the first one that comes."""

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError
from obstore.store import S3Store

from appliance.core.crypto import Sealer
from appliance.core.errors import ApplianceError
from appliance.core.sentences import Sentence

MARKER = "gos-installation"  # places of contents have slashes in their names, so none is called so
_MOST_READ = 200
# What servers say that cannot write on the condition that nothing is there.
_NO_CONDITION = ("501 ", "NotImplemented")


class BucketTaken(ApplianceError):
    """The bucket, or the prefix in it, belongs to another installation, which would delete what this one keeps there."""

    code, status = "bucket_taken", 503


def installation_id(sealer: Sealer) -> str:
    """The name of this installation: the same wherever its key file is, on other machines and after a restore too."""
    return f"ins_{sealer.digest(b'installation').hex()[:24]}"


def read_marker(bucket: S3Store) -> str | None:
    """The installation that the bucket belongs to; None when nobody has come yet."""
    try:
        return bytes(obstore.get(bucket, MARKER).bytes())[:_MOST_READ].decode("ascii", "replace").strip()
    except FileNotFoundError:
        return None


def claim(bucket: S3Store, installation: str) -> None:
    """Make the bucket this installation's, or see that it is; BucketTaken.

    Of two that come at once the server lets one write.  Where it knows no conditions both may, and the later one stays: so
    whoever is about to delete claims again.
    """
    owner = read_marker(bucket)
    if owner is None:
        _write(bucket, installation)
        owner = read_marker(bucket)
    if owner != installation:
        raise BucketTaken(Sentence(
            "the bucket belongs to another installation: its object %(marker)s (below blobs.prefix) says "
            "%(owner)s, this one is %(installation)s. Set blobs.bucket or blobs.prefix to a place of its own; to "
            "take the bucket over from an installation that has ended for good, delete that object and start "
            "again",
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
