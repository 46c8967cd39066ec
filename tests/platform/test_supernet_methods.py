"""Every method that trains a supernet, for two epochs on a tiny one, and the errors of their configurations."""

from __future__ import annotations

import math

import pytest
import torch

from archray.errors import InvalidInput
from archray.platform.methods import METHODS, get_method
from archray.platform.methods.configure import check_config, make_config
from archray.platform.methods.supernets.config import SupernetSearchConfig, mixed_spaces
from archray.platform.methods.supernets.stages import settings_of
from archray.trainables.spaces import get_space
from archray.trainables.supernets.networks import SUPERNETS
from archray.trainables.tune.supernet_trainable import SupernetTrainable

SUPERNET_METHODS = [name for name in METHODS if issubclass(get_method(name).config, SupernetSearchConfig)]
TINY = {
    "data": "digits",
    "data__limit": 200,
    "epochs": 2,
    "supernet__training__batch_size": 25,
    "supernet__training__threads": 1,
}
# A space whose supernet has partial channels and two groups, one with fifteen thousand cells, and one with chosen
# inputs.
SPACES = {"gaea-pc-darts": "darts", "pc-darts": "darts", "gaea-darts": "nasbench1shot1-1", "enas": "nasbench1shot1-2"}


def tensors(state: object) -> list[torch.Tensor]:
    """Returns all tensors in a nested state, in order."""
    if isinstance(state, torch.Tensor):
        return [state.clone()]
    children = state.values() if isinstance(state, dict) else state if isinstance(state, list | tuple) else ()
    return [each for child in children for each in tensors(child)]


def architecture_parameters(trial: SupernetTrainable) -> list[torch.Tensor]:
    """Returns the architecture parameters, or the weights of the controller."""
    state = trial.trainer.mixing.state_dict()
    return tensors([state.get("parameters", {}), state.get("controller", {})])


def has_changed(before: list[torch.Tensor], after: list[torch.Tensor]) -> bool:
    return any(not torch.equal(old, new) for old, new in zip(before, after, strict=True))


def test_the_registry_has_the_methods_of_the_field() -> None:
    assert set(SUPERNET_METHODS) >= {
        "darts", "darts-2nd", "pc-darts", "gdas", "snas", "gaea-darts", "gaea-pc-darts", "gaea-gdas", "rs-ws", "enas",
        "xnas", "supernet-halving",
    }  # fmt: skip


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] * (SPACES.get(name) == "darts" or name == "darts-2nd"))
        for name in SUPERNET_METHODS
    ],
)
def test_two_epochs_of_every_method(name: str) -> None:
    """Weights and architecture parameters change, the loss is finite, and the result can be decoded in its space."""
    space = get_space(SPACES.get(name, "nasbench201"))
    config = make_config(name, "smoke", None, {**TINY, "space": space.name})
    check_config(config)
    learns = config.supernet.optimizer.name != "none"
    questions = {} if name != "supernet-halving" else {"candidates": [space.encode(next(iter(space.enumerate())))]}
    trial = SupernetTrainable({"settings": settings_of(config), "seed": 1, **questions})
    weights = tensors(trial.trainer.supernet.state_dict())
    parameters = architecture_parameters(trial)
    assert parameters or not learns
    for epoch in (1, 2):
        result = trial.step()
        assert result["failure"] is None and result["epoch"] == epoch
        assert math.isfinite(result["train_loss"])
    assert result["done"] and math.isfinite(result["mixture_loss"] if questions == {} else result["shared_loss"])
    assert has_changed(weights, tensors(trial.trainer.supernet.state_dict()))
    assert has_changed(parameters, architecture_parameters(trial)) == learns
    if learns:
        space.check(space.decode(result["architecture"]))
        assert 0 <= result["shared_accuracy"] <= 1 and result["entropy"] >= 0


@pytest.mark.parametrize(
    ("name", "space"),
    [("xnas", "nasbench201"), ("enas", "nasbench201"), *(("gaea-pc-darts", space) for space in mixed_spaces())],
)
def test_the_options_of_the_papers_work_in_every_space(name: str, space: str) -> None:
    """Both networks of the paper can be built, without memory."""
    config = make_config(name, "paper", None, {"space": space, "data": "digits"})
    config.check()
    assert config.supernet.none == (space != "nasbench201"), "GAEA leaves out the operation none there"
    assert config.network.auxiliary == space.startswith("darts")


def test_every_space_of_networks_has_a_supernet() -> None:
    """A method that needs a supernet can list its spaces without importing supernets and torch."""
    assert set(SUPERNETS) - {"model"} == set(mixed_spaces())  # `model`: spaces of users


@pytest.mark.parametrize("objective", ["bilevel", "erm"])
def test_the_objective_is_a_flag(objective: str) -> None:
    config = make_config("gaea-darts", "smoke", None, {"objective": objective})
    assert config.supernet.training.objective == objective


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("gaea-darts", {"space": "fourier"}, "feature maps, not networks"),
        ("gaea-darts", {"space": "vit"}, "have no operations to mix"),
        ("gaea-darts", {"selection__epoch": 2}, "selection.epoch"),
        ("gaea-darts", {"network__auxiliary": True, "space": "nasbench201"}, "auxiliary"),
        ("gaea-pc-darts", {"search_channels": 6}, "partial_channels"),
        ("gaea-darts", {"supernet__optimizer__name": "adam"}, "supernet"),
    ],
)
def test_incompatible_options_raise_before_ray_starts(name: str, options: dict, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        check_config(make_config(name, "smoke", None, options))
