"""The plain searches, an entry each: the searcher, and what the terminal says."""

from __future__ import annotations

from archray.platform.methods.plain.plain_recipe import plain_recipe
from archray.platform.methods.plain.plain_searchers import evolution, random_search

RANDOM = plain_recipe(random_search, title="train random architectures")
EVOLUTION = plain_recipe(evolution, title="train mutations of good young architectures")
