"""What `gos doctor` finds about the master keys; the store must be open, with this release's schema."""

from collections.abc import Iterator

from appliance.core.config import Config
from appliance.core.errors import ConfigInvalid


def master_key_findings(config: Config) -> Iterator[tuple[str, str]]:
    """Check that the keys are those of the database, and whether values need earlier ones."""
    from appliance.master_key import get_status, read_sealer

    try:
        status = get_status(read_sealer(config))
    except ConfigInvalid as error:
        yield "FAIL", error.message
        return
    source = f"the master key {status.current} (master_key.source: {config.master_key.source})"
    earlier = [each.id for each in status.keys if each.retired_at is None and each.id != status.current]
    if status.waiting:
        yield "note", (
            f"{status.waiting} values are not sealed with {source} yet: that is done while gos serve or gos worker runs; see "
            "gos master-key status"
        )
    elif earlier:
        yield "note", f"all values are sealed with {source}; retire {', '.join(earlier)} with gos master-key retire"
    else:
        yield "ok", f"all values are sealed with {source}"
    if status.unreadable:
        count, columns = sum(status.unreadable.values()), ", ".join(sorted(status.unreadable))
        yield "note", f"{count} sealed values open with no master key ({columns}): they were imported, or are damaged"
