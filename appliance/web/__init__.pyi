from .services import Services as Services
