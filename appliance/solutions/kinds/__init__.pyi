from .changes import Action as Action
from .changes import Change as Change
from .changes import Kind as Kind
from .skills import load_skills as load_skills
from .webapp_deployment import load_published as load_published
