"""The methods: one recipe a file, a plain list of stages each."""

from archray.platform.methods.hnas import HNAS
from archray.platform.methods.method import METHODS, Method, config_class, get_method

METHODS.register(HNAS.name, HNAS)

__all__ = ["HNAS", "METHODS", "Method", "config_class", "get_method"]
