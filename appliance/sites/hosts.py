"""What answers on each kind of content host, put together."""

from pathlib import Path

from appliance.solutions.services import Services
from appliance.tenants.email_codes import EmailCodes

from .access import AccessGate
from .answers import App
from .cdn import Cdn
from .code_letters import CodeLetters
from .coded_errors import CodedErrors
from .domains import DomainRedirects
from .previews import PreviewSites
from .requests import NotedRequests
from .routes import Routes
from .sending import Sender
from .share_gate import ShareGate
from .share_pages import SharePages
from .shares import ShareSite
from .webapps import WebAppSites


def make_sites(services: Services, gate: AccessGate, templates: Path) -> dict[str, App]:
    """By the kind of the host table: apps, behind their gate, previews, the CDN."""
    sender = Sender(services.blobs, services.threads)
    codes = EmailCodes(services.sealer)
    post = CodeLetters(codes, services.executor, services.languages)
    entrance = ShareGate(services.shares, services.password_checks, codes, post)
    shares = ShareSite(services.shares, entrance, sender, SharePages(templates, services.languages))
    apps = WebAppSites(services.webapps, sender, gate, Routes(services, sender))
    return {
        "webapp": NotedRequests(CodedErrors(DomainRedirects(apps, services.domains.table, services.config)), services.requests),
        "preview": CodedErrors(PreviewSites(services.webapps, services.sealer, apps, sender)),
        "cdn": CodedErrors(Cdn(services.publications, sender, shares)),
    }
