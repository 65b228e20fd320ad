"""What was sent to the syslog server before there were several destinations counts as sent to it."""

import pytest

from appliance import migrations
from appliance.core.database import db
from appliance.migrations import sequence
from appliance.monitor.forwarding import read_lag

NUMBER = next(number for number, name in sequence.modules().items() if name.endswith("_signed_trails"))


@pytest.mark.usefixtures("empty_database")
def test_the_position_of_the_syslog_server_stays() -> None:
    migrations.migrate(NUMBER - 1)

    def fill() -> None:
        db.execute("INSERT INTO tenant (id, name, kind, created_at) VALUES ('acme', 'Acme', 'company', 0)")
        db.execute("INSERT INTO audit_chain VALUES ('acme', 0, '', 2, '')")
        for seq in (1, 2):
            db.execute("INSERT INTO audit_entry VALUES ('acme', ?, 0, '', '', '', '', '', '')", (seq,))
        db.execute("INSERT INTO audit_forward (tenant_id, seq, fence, lease_until) VALUES ('acme', 2, 7, 0)")

    db.write(fill)
    migrations.migrate()
    assert (read_lag("syslog").trails, read_lag("otlp").trails) == (0, 1)
    columns = "tenant_id, destination, seq, fence, lease_until, checkpoint_seq, checkpoint_at, rejected"
    assert db.rows(f"SELECT {columns} FROM audit_forward") == [("acme", "syslog", 2, 7, 0, 0, 0, 0)]  # noqa: S608  our own names
