from .event_loop import new_event_loop as new_event_loop
from .front import Front as Front
from .front import Readiness as Readiness
from .hypercorn_adapter import serve as serve
from .root import build_root as build_root
from .static import StaticFiles as StaticFiles
from .tls import build_server_config as build_server_config
from .transport import Transport as Transport
