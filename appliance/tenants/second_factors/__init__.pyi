from . import apps as apps
from . import factors as factors
from . import pending as pending
from . import step_ups as step_ups
from .passkeys import Ceremony as Ceremony
from .pending import PendingFactor as PendingFactor
from .service import SecondFactors as SecondFactors
from .step_ups import StepUpRequest as StepUpRequest
