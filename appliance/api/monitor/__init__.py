"""Routes of logs, alerts and outbound webhooks."""
