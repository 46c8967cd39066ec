"""The `load_model.py` of an export: with torch alone for networks and ensembles, with archray for classifiers."""

from __future__ import annotations

_NETWORK = '''"""Loads the exported WHAT with torch alone; run as a script, prints what it is.

`build_model` needs archray.
"""

import json
from pathlib import Path

import torch

here = Path(__file__).resolve().parent
described = json.loads((here / "architecture.json").read_text())


def load_model() -> torch.nn.Module:
    """The trained WHAT on the CPU: images (n, C, H, W), normalised -> OUTPUTS (n, classes).

    It is a program, as in evaluation mode; its layers have no names of archray's.
    """
    model = torch.export.load(here / "program.pt2").module()
    model.eval = lambda: model  # which it is in; torch's own raises
    return model


def build_model() -> torch.nn.Module:
    """The same as archray's own module, in evaluation mode: to be trained on, or taken apart."""
BUILD

if __name__ == "__main__":
    print(json.dumps(described, indent=2))
    parameters = sum(parameter.numel() for parameter in load_model().parameters())
    print(f"load_model() gives a torch.nn.Module with {parameters:,} parameters")
'''

_BUILD_NETWORK = """\
    from archray.trainables.nets import NetworkSettings, build

    space = described["space"]
    if described["space_file"]:
        space = f"{here / described['space_file']}:{space.partition(':')[2]}"
    model = build(
        space,
        described["architecture"],
        network=NetworkSettings(**described["network"]),
        in_channels=described["in_channels"],
        num_classes=described["num_classes"],
        seed=0,
    )
    model.load_state_dict(torch.load(here / "state_dict.pt", weights_only=True))
    return model.eval()
"""

_BUILD_ENSEMBLE = """\
    from archray.trainables.ensembles import load_ensemble

    space = None
    if described["space_file"]:
        space = f"{here / described['space_file']}:{described['members'][0]['space'].partition(':')[2]}"
    return load_ensemble(here, space)
"""


def _loader(what: str, outputs: str, build: str) -> str:
    return _NETWORK.replace("WHAT", what).replace("OUTPUTS", outputs).replace("BUILD", build)


NETWORK_LOADER = _loader("network", "logits", _BUILD_NETWORK)
ENSEMBLE_LOADER = _loader("ensemble", "averaged probabilities", _BUILD_ENSEMBLE)

CLASSIFIER_LOADER = '''"""Loads the exported classifier; run as a script, prints what it is. Needs archray."""

import json
from pathlib import Path

from archray.trainables.feature_maps.classifier import Classifier, load_classifier

here = Path(__file__).resolve().parent


def load_model() -> Classifier:
    """The classifier on the CPU: images (n, C, H, W), normalised, or texts -> decision values (n, classes)."""
    return load_classifier(here)


if __name__ == "__main__":
    print(json.loads((here / "architecture.json").read_text()))
    print(load_model())
'''
