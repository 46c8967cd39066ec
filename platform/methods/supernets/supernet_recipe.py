"""What methods that train a supernet do, and show: a search, and the stages after it."""

from __future__ import annotations

from typing import Any

from archray.platform.engine.stage import Stage
from archray.platform.methods.recipe import Recipe
from archray.platform.methods.supernets.drop_selection import SELECTION_STAGE
from archray.platform.methods.supernets.supernet_report import SECTIONS, headline, listings
from archray.platform.methods.supernets.supernet_search import SEARCH_STAGE
from archray.platform.methods.training_stages import BASELINE_STAGE, FINAL_STAGE
from archray.platform.report.measured import measured_networks


def supernet_recipe(search: Stage[Any]) -> Recipe[Any]:
    """GAEA's three stages. search: the first one; it writes what `supernet_search.write_found` says."""
    return Recipe(
        stages=(search, SELECTION_STAGE, FINAL_STAGE, BASELINE_STAGE),
        measured=measured_networks,
        headline=headline,
        sections=SECTIONS,
        listings=listings,
    )


LEARNED = supernet_recipe(SEARCH_STAGE)
