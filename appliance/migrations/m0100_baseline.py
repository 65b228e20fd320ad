"""The baseline: the tables of 0.1.0, whose statements are in the `baseline.py` of the room that owns them."""

from appliance.agents import baseline as agents
from appliance.blobs import baseline as blobs
from appliance.core.queue import table_statements
from appliance.datapool import baseline as datapool
from appliance.documents import baseline as documents
from appliance.governance import baseline as governance
from appliance.integrations import baseline as integrations
from appliance.llm import baseline as llm
from appliance.monitor import baseline as monitor
from appliance.processes import baseline as processes
from appliance.solutions import baseline as solutions
from appliance.tenants import baseline as tenants
from appliance.webapps import baseline as webapps

# A table comes after those that its foreign keys refer to; PostgreSQL requires that.
_ROOMS = (
    tenants, blobs, monitor, datapool, integrations, documents, webapps, processes, llm, governance, agents, solutions,
)  # fmt: skip

STATEMENTS = [*table_statements(), *(statement for room in _ROOMS for statement in room.STATEMENTS)]
ON_SQLITE = [*monitor.ON_SQLITE, *documents.ON_SQLITE]
ON_POSTGRESQL = [*monitor.ON_POSTGRESQL, *documents.ON_POSTGRESQL]
