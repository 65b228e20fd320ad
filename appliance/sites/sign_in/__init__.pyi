from .access import make_gate as make_gate
