"""Traces and metrics to a collector by OTLP over HTTP; loaded only where one is configured."""
