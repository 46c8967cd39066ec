"""Methods and studies, each with its configuration, presets, stages and report."""

from archray.platform.methods.catalog import METHODS, STUDIES, get_method, open_run
from archray.platform.methods.method import Method

__all__ = ["METHODS", "STUDIES", "Method", "get_method", "open_run"]
