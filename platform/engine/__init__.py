"""What does the work of a run: stages, Tune runs, scoring in shards, Ctrl-C, progress. Knows no method by name."""
