"""Slices of a supernet equal standalone networks, and a sandwich step is the sum of its networks' gradients."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from archray.errors import InvalidInput
from archray.trainables.data import DataSettings, load_images
from archray.trainables.nets import NetworkSettings, build, count_parameters
from archray.trainables.spaces import VisionTransformers
from archray.trainables.supernets.elastic import SandwichTrainer, build_sliced, score_slices
from archray.trainables.supernets.settings import SandwichSettings
from archray.trainables.tune.scorers import SlicedScorer
from archray.trainables.tune.settings import SlicedSettings
from archray.trainables.tune.supernet_trainable import SlicedTrainable

SPACE = VisionTransformers()
NETWORK = NetworkSettings(channels=2, cells=2)
SHAPE = {"in_channels": 1, "num_classes": 10}
RANDOM = tuple(SPACE.sample(np.random.default_rng(seed)) for seed in range(4))


@pytest.fixture(scope="module")
def supernet():
    """A supernet in float64 whose weights are all different."""
    module = build_sliced(SPACE, NETWORK, **SHAPE, seed=0).double()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) / 10)
    return module


def images(n=5):
    return torch.randn(n, 1, 8, 8, generator=torch.Generator().manual_seed(2), dtype=torch.float64)


def standalone_of(architecture):
    return build(SPACE, architecture, network=NETWORK, **SHAPE, seed=3).double()


@pytest.mark.parametrize("architecture", [SPACE.smallest, SPACE.largest, *RANDOM])
def test_a_slice_copied_into_its_network_has_the_same_outputs(supernet, architecture):
    standalone = standalone_of(architecture)
    standalone.load_state_dict(supernet.weights_of(architecture))
    torch.testing.assert_close(supernet(images(), architecture), standalone(images()), rtol=1e-10, atol=1e-10)
    assert count_parameters(standalone) == sum(w.numel() for w in supernet.weights_of(architecture).values())


def test_the_supernet_has_the_parameters_of_the_largest_network(supernet):
    assert count_parameters(supernet) == count_parameters(standalone_of(SPACE.largest))


def test_a_space_without_slices_raises_an_error():
    with pytest.raises(InvalidInput, match="slices of the largest one, got nasbench201"):
        build_sliced("nasbench201", NETWORK, **SHAPE, seed=0)


# Sandwich rule


def trainer_of(**options):
    data = load_images(DataSettings(name="digits", limit=100), device=torch.device("cpu"))
    settings = SandwichSettings(epochs=2, batch_size=20, **options)
    return SandwichTrainer(
        build_sliced(SPACE, NetworkSettings(channels=2, cells=1), **SHAPE, seed=0), data, settings, seed=4
    )


@pytest.mark.parametrize("distillation", [True, False])
def test_the_gradient_of_a_step_is_the_sum_of_four_standalone_networks(distillation):
    trainer = trainer_of(distillation=distillation)
    trainer.supernet.double()
    drawn, labels = RANDOM[:2], torch.arange(5)
    trainer.optimizer.zero_grad()
    trainer.gradients(images(), labels, drawn)
    expected = {name: torch.zeros_like(parameter) for name, parameter in trainer.supernet.named_parameters()}
    target = None
    for architecture in (SPACE.largest, SPACE.smallest, *drawn):
        network = build(SPACE, architecture, network=NetworkSettings(channels=2, cells=1), **SHAPE, seed=5).double()
        network.load_state_dict(trainer.supernet.weights_of(architecture))
        logits = network(images())
        if target is None:
            F.cross_entropy(logits, labels).backward()
            target = logits.detach().softmax(1) if distillation else labels
        else:
            F.cross_entropy(logits, target).backward()
        for name, parameter in network.named_parameters():
            add_slice(expected[f"network.{name}"], parameter.grad)
    for name, parameter in trainer.supernet.named_parameters():
        torch.testing.assert_close(parameter.grad, expected[name], rtol=1e-4, atol=1e-6, msg=name)  # logits are float32


def add_slice(whole, part):
    """Adds `part` to the first rows and columns of `whole`, for queries, keys and values to the first of each."""
    if whole.shape[0] == 3 * 4 * 4:  # four heads of four numbers
        whole, part = whole.unflatten(0, (3, -1)), part.unflatten(0, (3, -1))
    whole[tuple(slice(size) for size in part.shape)] += part


def test_an_epoch_is_seeded_and_resumes_from_a_state():
    one, other = trainer_of(), trainer_of()
    first = one.epoch()
    assert first == other.epoch()
    fresh = trainer_of()
    fresh.load_state_dict(one.state_dict())
    assert fresh.epoch() == other.epoch()
    assert fresh.finished
    with pytest.raises(RuntimeError, match="expected an unfinished training run"):
        fresh.epoch()


def test_shared_weights_learn():
    trainer = trainer_of(grad_clip=1.0)
    before = trainer.score([trainer.largest])[0].loss
    trainer.epoch()
    trainer.epoch()
    assert trainer.score([trainer.largest])[0].loss < before


def test_the_trial_is_restored_and_its_weights_score(tmp_path):
    settings = SlicedSettings(
        data=DataSettings(name="digits", limit=100),
        network=NetworkSettings(channels=2, cells=1),
        training=SandwichSettings(epochs=2, batch_size=20, threads=1),
    ).model_dump(mode="json")
    whole = SlicedTrainable({"settings": settings, "seed": 1})
    results = [whole.step(), whole.step()]
    halved = SlicedTrainable({"settings": settings, "seed": 1})
    halved.step()
    halved.save_checkpoint(str(tmp_path))
    restored = SlicedTrainable({"settings": settings, "seed": 1})
    restored.load_checkpoint(str(tmp_path))
    last = restored.step()
    unlike = {"seconds_epoch", "gpu_memory_peak"}
    assert {k: v for k, v in last.items() if k not in unlike} == {
        k: v for k, v in results[1].items() if k not in unlike
    }
    assert last["done"] and last["failure"] is None
    scorer = SlicedScorer(settings, restored.trainer.supernet.state_dict())
    rows = scorer([SPACE.encode(SPACE.largest), "rubbish"])
    assert rows[0]["shared_accuracy"] == last["largest_accuracy"]
    assert rows[0]["failure"] is None
    assert np.isnan(rows[1]["shared_accuracy"]) and "expected a choice" in rows[1]["failure"]
    wider = {**settings, "network": {**settings["network"], "channels": 3}}
    with pytest.raises(InvalidInput, match="expected the weights to belong to a supernet"):
        SlicedScorer(wider, restored.trainer.supernet.state_dict())


def test_the_score_of_a_slice_equals_that_of_its_network(supernet):
    data = load_images(DataSettings(name="digits", limit=100), device=torch.device("cpu"))
    small = build_sliced(SPACE, NETWORK, **SHAPE, seed=0)
    network = build(SPACE, RANDOM[0], network=NETWORK, **SHAPE, seed=3).eval()
    network.load_state_dict(small.weights_of(RANDOM[0]))
    [metrics] = score_slices(small, [RANDOM[0]], data.validation, 7)
    with torch.no_grad():
        logits = network(data.validation.images)
    right = int((logits.argmax(1) == data.validation.labels).sum())
    assert metrics.accuracy == right / len(data.validation)
    assert metrics.loss == pytest.approx(F.cross_entropy(logits, data.validation.labels).item(), rel=1e-5)
