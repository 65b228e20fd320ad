"""Who is told of a turn is kept with it, so that of its end hears who heard of its beginning."""

STATEMENTS = ["ALTER TABLE alert_event ADD COLUMN told_to TEXT"]
