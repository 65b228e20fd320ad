"""What in a tenant may refer to an integration, an LLM profile or a secret."""

from dataclasses import dataclass

from appliance.integrations import Integrations
from appliance.llm import LanguageModels
from appliance.monitor.alerts import Alerts
from appliance.webapps import WebApps


@dataclass(frozen=True)
class Referrers:
    """The items whose references are looked up, beside processes and agents.

    `email_integration` is the integration that the configuration names for e-mail of approvals; empty if none.
    """

    integrations: Integrations
    llm: LanguageModels
    webapps: WebApps
    alerts: Alerts
    email_integration: str
