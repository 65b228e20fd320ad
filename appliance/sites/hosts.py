"""Assembles the application of each kind of content host."""

from pathlib import Path

from appliance.tenants.sign_in import EmailCodes, open_counts
from appliance.web import App, Services

from .cdn.cdn import Cdn
from .front.coded_errors import CodedErrors
from .front.readers import Readers
from .shares.share_gate import ShareGate
from .shares.share_pages import SharePages
from .shares.shares import ShareSite
from .sign_in.access import AccessGate
from .sign_in.code_emails import CodeEmails
from .webapps.domains import DomainRedirects
from .webapps.previews import PreviewSites
from .webapps.requests import LoggedRequests
from .webapps.routes import Routes
from .webapps.sending import Sender
from .webapps.webapps import WebAppSites


def build_sites(services: Services, gate: AccessGate, templates: Path) -> dict[str, App]:
    """The application by kind of host: WebApps with their gate, previews, and the CDN."""
    sender, readers = Sender(services.blobs, services.threads), Readers(services.languages)
    codes = EmailCodes(services.sealer, open_counts)
    emails = CodeEmails(codes, services.governance.executor, services.languages)
    share_gate = ShareGate(services.documents.shares, services.limits.password_checks, codes, emails)
    shares = ShareSite(services.documents.shares, share_gate, sender, SharePages(templates, readers))
    apps = WebAppSites(services.webapps.apps, sender, gate, Routes(services, sender), readers)
    return {
        "webapp": LoggedRequests(
            CodedErrors(DomainRedirects(apps, services.webapps.domains.table, services.config), readers),
            services.webapps.requests, readers,
        ),
        "preview": CodedErrors(PreviewSites(services.webapps.apps, services.sealer, apps, sender), readers),
        "cdn": CodedErrors(Cdn(services.documents.publications, sender, shares, readers), readers),
    }
