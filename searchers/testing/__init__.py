"""The conformance suite of Tune searchers. Subclass `SearcherConformance`, and `TunerConformance` for a real Tuner."""

from archray.searchers.testing.conformance import SearcherConformance, hashed_score
from archray.searchers.testing.tuner import ConformanceTrainable, TunerConformance

__all__ = ["ConformanceTrainable", "SearcherConformance", "TunerConformance", "hashed_score"]
