"""The tables of a search by a supernet that its report reads. Accuracies are fractions; NaN where there is none.

- FOUND_CELLS, of the search, a row per search seed: `trial_id`, `seed`, `architecture`, `value` (validation accuracy of
  the architecture with shared weights), `validation_accuracy` (of the mixture), `failure`.
- ENTROPIES, of the search, a row per supernet, epoch, group and edge: `trial_id`, `seed`, `epoch`, `group`, `edge`,
  `entropy` of the edge's weights in nats, and `operations`: how many it weighs.
- SCORES, of the search, a row per architecture scored with shared weights: `trial_id`, `seed`, `architecture`, `loss`,
  `accuracy`, `failure`.
- SELECTED, of the selection, a row per found architecture trained on the final schedule: `architecture`, `epochs` (so
  many were trained), `value` (validation accuracy at the epoch where the worst were dropped), `validation_accuracy` (at
  its end), `kept` (trained to the end), `failure`.

The curves of the search have `seed` and `discretised_accuracy`, too.
"""

from __future__ import annotations

FOUND_CELLS = "found.parquet"
ENTROPIES = "entropies.parquet"
SCORES = "scores.parquet"
SELECTED = "selected.parquet"
