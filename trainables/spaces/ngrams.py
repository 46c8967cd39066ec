"""Hashed bags of n-grams of text. Khodak et al. 2020, appendix B.2.2; Wang and Manning 2012; Arora et al. 2017."""

from __future__ import annotations

from typing import ClassVar

from archray.trainables.spaces.feature_map import FeatureMapSpace, LogUniform, spelling
from archray.trainables.spaces.space import SPACES, Architecture, Decision

UNUSED = spelling(1.0)  # what the canonical form says for an alpha that no weights use


@SPACES.register("ngrams")
class NGrams(FeatureMapSpace):
    """Bags of n-grams: how text becomes tokens, which n-grams are counted, and how the counts are weighted.

    tokens: split on spaces; also between word characters and punctuation (punctuation); or nearly as NLTK does, with
    contractions and single marks apart (words). order: n-grams of 1 to this many tokens. counts: all, or whether there
    is one (binary). weights: none, Naive-Bayes log-ratios (two classes only), or SIF; alpha smooths either. scale:
    none, length 1 (normalise), or divided by the sum of the counts (average).
    """

    name: ClassVar[str] = "ngrams"
    data_kind: ClassVar[str] = "text"
    decisions = (
        Decision("tokens", ("spaces", "punctuation", "words")),
        Decision("stop_words", ("keep", "drop")),
        Decision("case", ("keep", "lower")),
        Decision("order", ("1", "2", "3")),
        Decision("counts", ("all", "binary")),
        Decision("weights", ("none", "naive-bayes", "sif")),
        Decision("scale", ("none", "normalise", "average")),
    )
    constant = LogUniform("alpha", 1e-5, 10.0)

    def canonical(self, architecture: Architecture) -> Architecture:
        """Without weights alpha means nothing: then it is 1."""
        self.check(architecture)
        if architecture[-3] == "none":  # weights
            return (*architecture[:-1], UNUSED)
        return architecture
