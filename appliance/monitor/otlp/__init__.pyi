from .exporter import Exporter as Exporter
