"""What answers on each kind of content host, put together."""

from pathlib import Path

from appliance.solutions.services import Services

from .access import AccessGate
from .answers import App
from .cdn import Cdn
from .coded_errors import CodedErrors
from .domains import DomainRedirects
from .previews import PreviewSites
from .requests import NotedRequests
from .routes import Routes
from .sending import Sender
from .share_pages import SharePages
from .shares import ShareSite
from .webapps import WebAppSites


def make_sites(services: Services, gate: AccessGate, templates: Path) -> dict[str, App]:
    """By the kind of the host table: apps, behind their gate, previews, the CDN."""
    sender = Sender(services.blobs, services.threads)
    shares = ShareSite(services.shares, sender, SharePages(templates))
    apps = WebAppSites(services.webapps, sender, gate, Routes(services, sender))
    return {
        "webapp": NotedRequests(CodedErrors(DomainRedirects(apps, services.domains.table, services.config)), services.requests),
        "preview": CodedErrors(PreviewSites(services.webapps, services.sealer, apps, sender)),
        "cdn": CodedErrors(Cdn(services.publications, sender, shares)),
    }
