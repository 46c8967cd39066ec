"""Execution of a run: stages, Tune runs, scoring in shards, Ctrl-C, progress. Independent of methods."""
