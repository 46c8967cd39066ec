"""Plain searches: one searcher, and independent training runs without shared weights."""
