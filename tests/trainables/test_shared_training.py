"""Two-layer networks stacked over instances: their outputs, and a step of the search, compared with plain loops."""

import pytest
import torch

from archray.errors import InvalidInput
from archray.trainables.activations.instances import Pool, make_instances
from archray.trainables.activations.settings import ActivationOptions
from archray.trainables.activations.two_layer import (
    Problem,
    Sample,
    component_outputs,
    get_activations,
    mixture_outputs,
    output_weights,
    train,
    uniform_alpha,
)
from archray.trainables.data import DataSettings
from archray.trainables.supernets.optimizers import MirrorDescent

NAMES = ("relu", "tanh", "quadratic")
SMALL = ActivationOptions(activations=NAMES, width=5, dimension=3, samples=12, validation=9, risk_samples=20)
CPU = torch.device("cpu")


def test_outputs_equal_those_of_each_network():
    instances = make_instances(SMALL, "realizable", [3, 4], None, CPU)
    inputs, weights = instances.risk.inputs, instances.initial
    outputs = component_outputs(inputs, weights, instances.output, get_activations(NAMES))
    assert outputs.shape == (2, 20, 3)
    for s, n, i in ((0, 0, 0), (1, 7, 1), (1, 19, 2)):
        hidden = [sum(float(w) * float(x) for w, x in zip(row, inputs[s, n], strict=True)) for row in weights[s]]
        function = get_activations(NAMES)[i]
        total = sum(float(v) * float(function(torch.tensor(z))) for v, z in zip(instances.output, hidden, strict=True))
        assert outputs[s, n, i].item() == pytest.approx(total, abs=1e-6)
    assert output_weights(5).tolist() == pytest.approx([5**-0.5] * 3 + [-(5**-0.5)] * 2)


def test_a_step_is_mirror_descent_on_validation_and_gradient_descent_on_training_points():
    instances = make_instances(SMALL, "realizable", [0, 1], None, CPU)
    functions = get_activations(NAMES)
    problem = Problem(instances.training, instances.validation, instances.output, functions, 0.2)
    state = train(uniform_alpha(instances.initial, 3, torch.full((2,), 0.3).double()), 3, problem)
    for s in range(2):  # one instance alone, by GAEA's optimizer
        weights = instances.initial[s].clone().requires_grad_()
        alpha = torch.full((3,), 1 / 3, dtype=torch.float64, requires_grad=True)
        by_alpha = MirrorDescent([alpha], 0.2, log_space=True)

        def loss(sample, s=s, weights=weights, alpha=alpha):
            hidden = sample.inputs[s] @ weights.T
            outputs = sum(a * (f(hidden) @ instances.output) for a, f in zip(alpha, functions, strict=True))
            return 0.5 * (sample.labels[s] - outputs).square().mean()

        for _ in range(3):
            alpha.grad = torch.autograd.grad(loss(instances.validation), alpha)[0]
            by_alpha.step()
            weights.data -= 0.3 * torch.autograd.grad(loss(instances.training), weights)[0]
        torch.testing.assert_close(state.weights[s], weights.detach())
        torch.testing.assert_close(state.alpha[s], alpha.detach())


def test_alpha_stays_without_validation_points_and_a_rate_that_is_too_high_is_halved():
    instances = make_instances(SMALL, "realizable", [0, 1], None, CPU)
    problem = Problem(instances.training, None, instances.output, get_activations(NAMES), 1.0)
    rates = torch.tensor([1e3, 0.1], dtype=torch.float64)
    start_state = uniform_alpha(instances.initial, 3, rates)
    state = train(start_state, 30, problem)
    torch.testing.assert_close(state.alpha, torch.full((2, 3), 1 / 3, dtype=torch.float64))
    assert state.rates[1] == 0.1 and 0 < state.rates[0] < 100
    assert (problem.losses(state) < problem.losses(start_state)).all()
    alone = make_instances(SMALL, "realizable", [1], None, CPU)
    problem = Problem(alone.training, None, alone.output, get_activations(NAMES), 1.0)
    undisturbed = train(uniform_alpha(alone.initial, 3, rates[1:]), 30, problem)
    torch.testing.assert_close(state.weights[1], undisturbed.weights[0])


def test_nonfinite_numbers_are_reported():
    instances = make_instances(SMALL, "realizable", [0], None, CPU)
    labels = torch.full_like(instances.training.labels, torch.nan)
    problem = Problem(Sample(instances.training.inputs, labels), None, instances.output, get_activations(NAMES), 1.0)
    with pytest.raises(FloatingPointError, match="expected finite inputs and labels"):
        train(uniform_alpha(instances.initial, 3, torch.ones(1).double()), 1, problem)


@pytest.mark.parametrize("labels", ["realizable", "noisy", "outside"])
def test_an_instance_is_the_same_alone_and_among_others(labels):
    several = make_instances(SMALL, labels, [5, 6, 7], None, CPU)
    alone = make_instances(SMALL, labels, [6], None, CPU)
    for part in ("training", "validation", "risk"):
        torch.testing.assert_close(getattr(several, part).labels[1], getattr(alone, part).labels[0])
    torch.testing.assert_close(several.initial[1], alone.initial[0])


def test_labels_match_their_kind():
    realizable, noisy, outside = (
        make_instances(SMALL, labels, [2], None, CPU) for labels in ("realizable", "noisy", "outside")
    )
    assert realizable.teacher.sum().item() == pytest.approx(1.0) and outside.teacher.isnan().all()
    torch.testing.assert_close(realizable.risk.inputs, outside.risk.inputs)
    noise = noisy.risk.labels - realizable.risk.labels
    assert 0.1 < (noise.std() / realizable.risk.labels.std()).item() < 1.2
    assert (outside.risk.labels - realizable.risk.labels).abs().max() > 0.1
    samples = torch.cat([getattr(realizable, part).inputs for part in ("training", "validation", "risk")], 1)
    assert len(samples[0].unique(dim=0)) == 12 + 9 + 20  # no point is in two of them
    hidden = torch.eye(3, dtype=torch.float64)[None]  # only the shape matters here
    assert mixture_outputs(hidden, realizable.teacher).shape == (1, 3)


def test_a_data_set_provides_inputs_and_labels():
    pool = Pool.load(DataSettings(name="digits"))
    assert pool.inputs.shape == (1797, 64) and sorted(pool.labels.unique().tolist()) == [-1.0, 1.0]
    options = SMALL.model_copy(update={"samples": 200, "validation": 200})
    pool.check(options, "digits", labeled=True)
    instances = make_instances(options, "data", [0, 1], pool, CPU)
    assert instances.training.inputs.shape == (2, 200, 64)
    assert set(instances.risk.labels.unique().tolist()) == {-1.0, 1.0}
    assert not torch.equal(instances.risk.labels[0], instances.risk.labels[1])
    with pytest.raises(InvalidInput, match=r"expected 2030 or more points .* got 1.797 points of digits. Lower"):
        pool.check(options.model_copy(update={"samples": 1800}), "digits", labeled=True)
    with pytest.raises(InvalidInput, match=r"expected data with two or more classes .* got one class of digits"):
        Pool(pool.inputs, None).check(options, "digits", labeled=True)
