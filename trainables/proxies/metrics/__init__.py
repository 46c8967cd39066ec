"""The training-free metrics. To add a metric, add a function to a file in this package, or a file.

The registry imports all files, without torch. A file imports torch, and modules that import it, as a `LazyModule`.
"""

from archray.registry import import_modules

import_modules(__name__)
