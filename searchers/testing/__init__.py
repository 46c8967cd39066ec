"""A conformance suite for Tune searchers. Subclass `SearcherConformance` and `TunerConformance` in a test file."""

from archray.searchers.testing.conformance import ConformanceSuite, SearcherConformance, hashed_score
from archray.searchers.testing.tuner import ConformanceTrainable, TunerConformance

__all__ = ["ConformanceSuite", "ConformanceTrainable", "SearcherConformance", "TunerConformance", "hashed_score"]
