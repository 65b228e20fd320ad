from . import service as service
from .models import Firing as Firing
from .registration import parse_stored_triggers as parse_stored_triggers
from .service import TriggerView as TriggerView
from .service import preview_due_times as preview_due_times
from .signatures import Request as Request
from .webhooks import group_fields as group_fields
