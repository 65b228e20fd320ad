from . import reviews as reviews
from .reviews import Decision as Decision
from .reviews import NewReview as NewReview
from .reviews import Review as Review
