"""The names of what lies in the folder of a run, and of where runs lie."""

import shlex

RUNS = "archray-runs"  # where `search` puts runs that are given no folder
MANIFEST = "manifest.json"
SUMMARY = "summary.json"  # what `show`, `load`, `runs` and `watch` read; see `run_summary`
HEARTBEAT = "heartbeat.json"  # the lock of the process that works on the run; see `heartbeat`
CODE = "code"  # copies of the user's files, as they were when the run began
ARRAYS = "arrays.npz"  # arrays given through Python
DONE = "done.json"  # of a stage that has ended, written last
FOUND = "architecture.json"  # what a search, a selection, a run has found
FINDINGS = "findings.json"  # of a study: what it concludes
TRIALS, CURVES = "trials.parquet", "curves.parquet"  # of a stage that trains: a row a trial, a row an epoch of each
RERUN_GPUS = "rerun_gpus"  # column of both: the share of a GPU of a trial that was run again
ROUNDS = "rounds.parquet"  # of successive halving: a row a round and candidate
PROGRESS = "progress.parquet"  # the best so far by solver calls and seconds
PARETO = "pareto.parquet"  # what no other of a search betters, a row a member
MEMBERS = "members.parquet"  # the members of it that were trained in full, a row each
MODEL = "model"
REPORT = "report.html"
REPEAT = "repeat-"  # and two digits: the folder of one repeat, a run of its own

# In a stage's folder, while it is on; see `stage_progress`.
TUNE = "tune-"  # and a digest: the folder of a Tune run
PLAN = "plan.json"  # of a Tune run: when it began, how many trials there are, their metric and its mode
STARTED = "started"  # of a Tune run, a JSON file a trial: its configuration, and when it started
RESULTS = "results"  # of a Tune run, a file of JSON lines a trial, a line a result
SNAPSHOT = "snapshot.zip"  # of a Tune run: its state files as they were when Tune last wrote them all
JOURNAL = "journal-"  # and a number: of a Tune run, what became of its trials after the snapshot; see `tune_snapshot`
FAILED = "failed"  # of a Tune run: TRIAL.json of each trial that failed, and TRIAL.txt, the stacks
SHARDS = "shards"  # of a scoring: its rows, as they arrive
SCORING = "scoring.json"  # beside `shards/`: when it began, how many architectures are scored, how many a second


def command(*words: object) -> str:
    """`archray` with these words, quoted for a shell, so that it can be copied from a message."""
    return shlex.join(["archray", *map(str, words)])
