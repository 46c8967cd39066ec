"""The plain searches: one searcher, trainings one by one, and nothing shared between them."""
