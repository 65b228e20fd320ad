from .services import AgentServices as AgentServices
from .services import DocumentServices as DocumentServices
from .services import GovernanceServices as GovernanceServices
from .services import Limits as Limits
from .services import MonitorServices as MonitorServices
from .services import Services as Services
from .services import WebAppServices as WebAppServices
