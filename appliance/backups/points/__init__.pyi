from .restoring import PointRequest as PointRequest
from .shipping import PointShipper as PointShipper
from .status import PointReport as PointReport
from .status import findings as findings
from .status import get_report as get_report
