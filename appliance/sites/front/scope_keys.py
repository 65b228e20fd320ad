"""Entries of the ASGI scope that only the content hosts use."""

# A `Visitor` set by the appliance itself for its own requests, so that no gate asks for a sign-in. Requests from outside cannot
# have it.
VISITOR = "gos.visitor"
# Values for the request log, set by whoever responds: `route` and `execution_id`.
LOG_FIELDS = "gos.noted"
