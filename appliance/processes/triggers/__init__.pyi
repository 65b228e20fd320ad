from . import service as service
from .models import Firing as Firing
from .registration import triggers_of as triggers_of
from .service import TriggerView as TriggerView
from .service import foretell as foretell
from .signatures import Request as Request
from .webhooks import fields_of as fields_of
