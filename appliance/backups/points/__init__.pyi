from .restoring import PointRequest as PointRequest
from .shipping import PointShipper as PointShipper
from .status import findings as findings
