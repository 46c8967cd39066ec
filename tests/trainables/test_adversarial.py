"""Attacks on one member, in pixels, and the defense by all members. Tests of attacks need the toolbox."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from archray.errors import InvalidInput, MissingExtra
from archray.trainables.adversarial import attacks
from archray.trainables.adversarial.attacks import ATTACKS, AttackSettings, check_toolbox
from archray.trainables.adversarial.defense import (
    PixelNetwork,
    adversarial_images,
    attack_member,
    check_defenders,
    check_pixels,
    chosen_images,
    classifier_of,
    pixels_of,
)
from archray.trainables.data import DataSettings, load_images
from archray.trainables.data.image_form import ImageForm
from archray.trainables.ensembles.ensemble import Ensemble

FORM = ImageForm(channels=3, size=6, mean=(0.5, 0.2, 0.7), std=(0.2, 0.5, 0.1))  # separate values for each channel
QUICK = AttackSettings.model_validate({"epsilon": 0.05, "autoattack": {"iterations": 5, "queries": 20}, "batch": 16})
SEED = 2**40  # more than NumPy's global generator takes


def network(seed: int, classes: int = 4) -> nn.Module:
    """Normalized images of FORM -> logits."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        layers = nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.Flatten(), nn.Linear(96, classes)
        return nn.Sequential(*layers).eval()


def some_pixels(number: int = 24) -> Tensor:
    """Includes values at both ends of 0..1."""
    return (torch.rand(number, 3, 6, 6, generator=torch.Generator().manual_seed(0)) * 1.4 - 0.2).clamp(0, 1)


def normalized(pixels: Tensor) -> Tensor:
    mean, std = (torch.tensor(values).view(1, -1, 1, 1) for values in (FORM.mean, FORM.std))
    return (pixels - mean) / std


# Pixels


def test_pixels_are_normalized_for_the_network() -> None:
    pixels, member = some_pixels(), network(0)
    assert torch.allclose(pixels_of(normalized(pixels), FORM), pixels, atol=1e-6)
    assert torch.allclose(PixelNetwork(member, FORM)(pixels), member(normalized(pixels)), atol=1e-5)


def test_a_network_with_an_auxiliary_tower_returns_the_logits() -> None:
    class Towered(nn.Module):
        def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
            return images.flatten(1)[:, :4], images.flatten(1)[:, 4:8]

    assert PixelNetwork(Towered(), FORM)(some_pixels()).shape == (24, 4)


@pytest.mark.parametrize("name", ["digits", "gaussian"])
def test_only_data_with_pixels_in_0_to_1_are_attacked(name: str) -> None:
    data = load_images(DataSettings(name=name, limit=20))
    if name == "digits":
        assert check_pixels(data).unit
        return
    with pytest.raises(InvalidInput, match=r"expected images with pixels in 0\.\.1 .* got gaussian"):
        check_pixels(data)


# Attacks


@pytest.mark.parametrize("name", ["fgsm", "pgd", "autoattack"])
@pytest.mark.extra("adversarial")
def test_no_pixel_changes_by_more_than_epsilon_or_leaves_0_to_1(name: str) -> None:
    target, pixels = PixelNetwork(network(0), FORM), some_pixels()
    labels = target(pixels).argmax(1)
    changed = adversarial_images(target, pixels, labels, ATTACKS.get(name), QUICK, seed=SEED)
    assert changed.shape == pixels.shape and changed.min() >= 0 and changed.max() <= 1
    largest = (changed - pixels).abs().amax()
    assert 0.999 * QUICK.epsilon < largest <= QUICK.epsilon * (1 + 1e-4) + 1e-6
    noise = QUICK.epsilon * torch.randn(pixels.shape, generator=torch.Generator().manual_seed(1)).sign()
    right = (target(changed).argmax(1) == labels).float().mean()
    assert right < (target((pixels + noise).clamp(0, 1)).argmax(1) == labels).float().mean()


@pytest.mark.extra("adversarial")
def test_fgsm_is_a_step_along_the_sign_of_the_gradient() -> None:
    target, pixels, labels = PixelNetwork(network(1), FORM), some_pixels().requires_grad_(), torch.arange(24) % 4
    (gradient,) = torch.autograd.grad(nn.functional.cross_entropy(target(pixels), labels), pixels)
    expected = (pixels + QUICK.epsilon * gradient.sign()).clamp(0, 1).detach()
    changed = adversarial_images(target, pixels.detach(), labels, ATTACKS.get("fgsm"), QUICK, seed=0)
    assert torch.allclose(changed, expected, atol=1e-6)


@pytest.mark.extra("adversarial")
def test_pgd_of_one_long_step_without_a_random_start_is_fgsm() -> None:
    target, pixels, labels = PixelNetwork(network(1), FORM), some_pixels(), torch.arange(24) % 4
    one = AttackSettings.model_validate(
        {"epsilon": 0.05, "pgd": {"iterations": 1, "step": 0.05, "random_start": False}}
    )
    pgd, fgsm = (adversarial_images(target, pixels, labels, ATTACKS.get(n), one, seed=0) for n in ("pgd", "fgsm"))
    assert torch.allclose(pgd, fgsm, atol=1e-6)


@pytest.mark.extra("adversarial")
def test_cw_of_a_linear_network_ends_just_beyond_the_boundary() -> None:
    """The distance to the boundary between two classes is the difference of their logits over that of weights."""
    member = nn.Sequential(nn.Flatten(), nn.Linear(108, 2))
    with torch.no_grad():
        member[1].weight.copy_(torch.randn(2, 108, generator=torch.Generator().manual_seed(3)))
        member[1].bias.zero_()
    target = PixelNetwork(member, ImageForm(channels=3, size=6, mean=(0.0,) * 3, std=(1.0,) * 3))
    pixels = 0.4 + 0.2 * some_pixels()  # far from the ends, where clipping would add to the distance
    logits = target(pixels).detach()
    labels = logits.argmax(1)
    # Without a confidence some images end exactly on the boundary, where rounding decides the class.
    cw = {"constant": 1.0, "confidence": 0.05, "search_steps": 5, "iterations": 30}
    changed = adversarial_images(
        target, pixels, labels, ATTACKS.get("cw"), AttackSettings.model_validate({"cw": cw}), seed=0
    )
    assert (target(changed).argmax(1) != labels).all()
    least = (logits[:, 0] - logits[:, 1]).abs() / (member[1].weight[0] - member[1].weight[1]).norm().detach()
    distance = (changed - pixels).flatten(1).norm(dim=1)
    assert (distance > 0.999 * least).all()
    assert distance.mean() < 1.5 * least.mean()


@pytest.mark.extra("adversarial")
def test_autoattack_skips_attacks_that_need_three_classes() -> None:
    target, pixels = PixelNetwork(network(0, classes=2), FORM), some_pixels(8)
    labels = target(pixels).argmax(1)
    changed = adversarial_images(target, pixels, labels, ATTACKS.get("autoattack"), QUICK, seed=0)
    assert (target(changed).argmax(1) != labels).any()


@pytest.mark.extra("adversarial")
def test_an_attack_depends_on_its_seed_and_leaves_the_global_generators_and_the_network() -> None:
    target, pixels, labels = PixelNetwork(network(1), FORM), some_pixels(), torch.arange(24) % 4
    states = np.random.get_state()[1].copy(), torch.get_rng_state()  # noqa: NPY002
    first, again, other = (
        adversarial_images(target, pixels, labels, ATTACKS.get("pgd"), QUICK, seed=seed) for seed in (1, 1, 2)
    )
    assert torch.equal(first, again) and not torch.equal(first, other)
    assert np.array_equal(np.random.get_state()[1], states[0])  # noqa: NPY002
    assert torch.equal(torch.get_rng_state(), states[1])
    assert all(parameter.requires_grad and parameter.grad is None for parameter in target.parameters())


@pytest.mark.extra("adversarial")
def test_gradients_of_chosen_classes_equal_those_of_separate_images() -> None:
    target, pixels, chosen = PixelNetwork(network(2), FORM), some_pixels(6), np.array([0, 3, 1, 1, 2, 0])
    found = classifier_of(target, (3, 6, 6), 4).class_gradient(pixels.numpy(), label=chosen)
    for image, label, gradient in zip(pixels, chosen, found, strict=True):
        one = image[None].clone().requires_grad_()
        (expected,) = torch.autograd.grad(target(one)[0, label], one)
        assert np.allclose(gradient, expected[0].numpy(), atol=1e-5)


def test_a_missing_toolbox_is_named_in_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attacks, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"pip install '\.\[adversarial\]'"):
        check_toolbox()


# Defense


@pytest.mark.parametrize("average", ["probabilities", "logits"])
@pytest.mark.parametrize("name", ["fgsm", "cw"])
@pytest.mark.extra("adversarial")
def test_a_round_has_the_predictions_of_each_member(name: str, average: str) -> None:
    ensemble = Ensemble([network(seed) for seed in (0, 1, 2)], average=average)  # type: ignore[arg-type]
    pixels = some_pixels()
    labels = ensemble(normalized(pixels)).argmax(1)
    settings = AttackSettings.model_validate({"epsilon": 0.05, "cw": {"iterations": 10, "constant": 1.0}})
    table = attack_member(ensemble, FORM, normalized(pixels), labels, 1, name, settings, seed=5)
    again = attack_member(ensemble, FORM, normalized(pixels), labels, 1, name, settings, seed=5)
    assert table.drop(columns="seconds").equals(again.drop(columns="seconds"))
    assert table["image"].tolist() == list(range(24)) and table["label"].tolist() == labels.tolist()
    assert table["benign_ensemble"].tolist() == labels.tolist()
    assert table["benign_member"].tolist() == ensemble.members[1](normalized(pixels)).argmax(1).tolist()
    wrong = (table["attacked_member"] != table["label"]).mean()
    assert wrong > (table["attacked_ensemble"] != table["label"]).mean()  # the others were not attacked
    assert wrong > (table["noise_member"] != table["label"]).mean()
    assert set(table["transfer"]) <= {0.0, 0.5, 1.0}
    if name == "fgsm":
        assert table["linf"].max() <= 0.05 + 1e-6
    else:
        assert (table["l2"] > 0).sum() >= wrong * 24 - (table["benign_member"] != table["label"]).sum()


def test_an_ensemble_of_one_has_no_defenders() -> None:
    with pytest.raises(InvalidInput, match=r"expected an ensemble with two or more members, .* got 1 member"):
        check_defenders(1)


def test_the_seed_selects_distinct_images() -> None:
    chosen = chosen_images(100, 30, 7)
    assert len(set(chosen)) == 30 and np.array_equal(chosen, np.sort(chosen)) and chosen.max() < 100
    assert np.array_equal(chosen, chosen_images(100, 30, 7)) and not np.array_equal(chosen, chosen_images(100, 30, 8))
    assert chosen_images(100, 100, 0).tolist() == list(range(100))
