from . import examples as examples
from .models import Execution as Execution
from .models import JournalRow as JournalRow
from .models import Process as Process
from .models import ProcessVersion as ProcessVersion
from .models import SampleRow as SampleRow
from .models import StepRunRow as StepRunRow
from .service import ProcessFlow as ProcessFlow
