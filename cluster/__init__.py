"""The cluster on which trials run: connections to Ray, resources, and pools of actors."""

import os
import sys

# Ray's switch for macOS and Windows, which Ray reads when it is imported: with 0, it uses only 127.0.0.1.
CLUSTER_VARIABLE = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
PLAIN_RAY = "ARCHRAY_PLAIN_RAY"  # 1: archray uses no private name of Ray


def plain_ray() -> bool:
    """Returns whether the environment forbids all private names of Ray."""
    return os.environ.get(PLAIN_RAY) == "1"


# Otherwise `loopback_only` changes the switch of a Ray that is imported already.
if plain_ray() and "ray" not in sys.modules:
    os.environ.setdefault(CLUSTER_VARIABLE, "0")
