"""The names of what lies in a run's folder."""

from __future__ import annotations

MANIFEST = "manifest.json"
CODE = "code"  # copies of the user's files, as they were when the run began
ARRAYS = "arrays.npz"  # arrays given through Python
DONE = "done.json"  # of a stage that has ended, written last
FOUND = "architecture.json"  # what a search, a selection, a run has found
TRIALS, CURVES = "trials.parquet", "curves.parquet"  # of a stage that trains: a row a trial, a row an epoch of each
ROUNDS = "rounds.parquet"  # of successive halving: a row a round and candidate
PROGRESS = "progress.parquet"  # the best so far by solver calls and seconds
MODEL = "model"
REPORT = "report.html"
REPEAT = "repeat-"  # and two digits: the folder of one repeat, a run of its own
