"""The training-free metrics, by families. To add one, add a function to a file here, or a file.

All files are imported with the registry: names, summaries and directions are available without torch. So a file imports
torch, and modules that import it, as a `LazyModule`.
"""

from archray.registry import import_modules

import_modules(__name__)
