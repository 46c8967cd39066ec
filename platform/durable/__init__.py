"""Exact resume of Tune runs: the log is the state of a run, see `archray.platform.run.trial_log`."""
