from .access import build_gate as build_gate
