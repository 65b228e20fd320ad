from .changes import Action as Action
from .changes import Change as Change
from .changes import Kind as Kind
from .deploying import load_published as load_published
from .skills import load_skills as load_skills
