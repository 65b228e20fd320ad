"""What the letters of the appliance go by, and the languages they may be in."""

from dataclasses import dataclass

from appliance.core.catalogues import Languages
from appliance.governance.executor.executor import GovernedExecutor
from appliance.integrations import Integrations


@dataclass(frozen=True)
class Writing:
    """Letters are actions of an integration; whoever writes one speaks the language of its reader meanwhile."""

    executor: GovernedExecutor
    integrations: Integrations
    languages: Languages
