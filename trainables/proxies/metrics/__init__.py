"""The training-free metrics, a file for each: its name is the metric's, its docstring's first sentence the summary."""
