"""What the appliance's e-mails need: the executor and integration that send them, and the available languages."""

from dataclasses import dataclass

from appliance.core.catalogues import Languages
from appliance.governance.executor.executor import GovernedExecutor
from appliance.integrations import Integrations


@dataclass(frozen=True)
class EmailDependencies:
    """Dependencies of e-mails, which are actions of an integration and are written in the reader's language."""

    executor: GovernedExecutor
    integrations: Integrations
    languages: Languages
