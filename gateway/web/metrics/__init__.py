"""Metrics for Prometheus. Only this package imports prometheus-client, and only a Gateway loads this package."""

from gateway.web.metrics.metrics import Metrics

__all__ = ["Metrics"]
