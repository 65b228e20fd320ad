"""API keys can be limited to named processes, collections and integrations, as a JSON object; NULL does not limit."""

STATEMENTS = ["ALTER TABLE api_key ADD COLUMN limits TEXT"]
