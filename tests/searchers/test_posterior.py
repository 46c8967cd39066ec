"""The posterior over architectures: validation, samples with its probabilities, and their strings."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import chisquare

from archray.errors import InvalidArchitecture, InvalidInput
from archray.searchers.nesbs.posterior import Posterior
from archray.trainables.spaces import get_space

PLAIN = {"width": [0.0, 1.0, -1.0], "depth": [0.5, -np.inf]}


def flat(space: str) -> dict[str, np.ndarray]:
    return {d.name: np.zeros(len(d.choices)) for d in get_space(space).posterior_decisions}


def test_logits_are_normalized_and_cannot_be_changed() -> None:
    source = {"width": np.array([1e4, 1e4 - 1.0]), "depth": np.array([-2e4, -np.inf])}
    posterior = Posterior(source)
    np.testing.assert_allclose(np.exp(posterior.log_probs).sum(-1), 1.0)
    np.testing.assert_allclose(posterior.log_probs[0, 1] - posterior.log_probs[0, 0], -1.0)
    assert posterior.log_probs[1].tolist() == [0.0, -np.inf]
    with pytest.raises(ValueError, match="read-only"):
        posterior.log_probs[0, 0] = 0.0
    with pytest.raises(ValueError, match="read-only"):
        pickle.loads(pickle.dumps(posterior)).log_probs[0, 0] = 0.0
    source["width"][0] = 0.0
    assert posterior.log_probs[0, 0] > posterior.log_probs[0, 1]


def test_json_round_trip() -> None:
    posterior = Posterior(PLAIN)
    again = Posterior(json.loads(json.dumps(posterior.to_dict(), allow_nan=False)))
    assert again.checksum == posterior.checksum
    assert again.checksum != Posterior({**PLAIN, "width": [0.0, 1.0, -1.1]}).checksum


@pytest.mark.parametrize(
    ("log_probs", "message"),
    [
        ({}, "expected a dict from decision"),
        ([0.0], "expected a dict from decision"),
        ({"width": [[0.0, 1.0]]}, "one log-probability per choice of 'width'"),
        ({"width": []}, "one log-probability per choice"),
        ({"width": 1.0}, "one log-probability per choice"),
        ({"width": [0.0, np.nan]}, "expected finite log-probabilities"),
        ({"width": [0.0, np.inf]}, "expected finite log-probabilities"),
        ({"width": [-np.inf, None]}, "at least one finite value"),
        ({"width": ["many", "few"]}, "expected numbers for the decision 'width'"),
    ],
)
def test_an_invalid_posterior_raises_an_error(log_probs: dict[str, list[float]], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        Posterior(log_probs)


def test_a_space_requires_its_decisions() -> None:
    with pytest.raises(InvalidInput, match="missing: 1<-0, unknown: width"):
        Posterior(
            {("width" if name == "1<-0" else name): row for name, row in flat("nasbench201").items()}, "nasbench201"
        )
    with pytest.raises(InvalidInput, match=r"expected 5 log-probabilities for 2<-1 \(none, "):
        Posterior({**flat("nasbench201"), "2<-1": np.zeros(4)}, "nasbench201")
    with pytest.raises(InvalidInput, match="or encode, got both"):
        Posterior(flat("nasbench201"), "nasbench201", encode=str)


def test_the_order_of_decisions_does_not_matter() -> None:
    rows = flat("nasbench201")
    assert Posterior(dict(reversed(rows.items())), "nasbench201").decisions == tuple(rows)


def test_samples_match_the_probabilities() -> None:
    """Chi-square over all combinations. Impossible combinations are never sampled."""
    logits = {"a": [0.3, -1.0, 0.0, -np.inf], "b": [0.0, 2.0], "c": [-np.inf, 0.1, 0.2]}
    posterior = Posterior(logits)
    for tempered, temperature in ((posterior, 1.0), (posterior.tempered(3.0), 3.0)):
        p = [np.exp(np.array(row) / temperature) for row in logits.values()]
        joint = np.einsum("a,b,c->abc", *[row / row.sum() for row in p])
        choices = tempered.draw((100, 200), np.random.default_rng(0)).reshape(-1, 3)
        counts = np.zeros(joint.shape)
        np.add.at(counts, tuple(choices.T), 1)
        assert (counts[joint == 0] == 0).all()
        assert chisquare(counts[joint > 0], joint[joint > 0] * len(choices)).pvalue > 0.001


def test_strings_of_samples() -> None:
    assert json.loads(Posterior(PLAIN).architecture([2, 0])) == {"width": 2, "depth": 0}
    own = Posterior(PLAIN, encode=lambda choice: f"{choice['width']}x{choice['depth']}")
    assert own.architecture(np.array([2, 0])) == "2x0"
    cells = Posterior(flat("nasbench201"), "nasbench201")
    assert cells.architecture([3, 0, 1, 2, 4, 3]).startswith("|nor_conv_3x3~0|+|none~0|skip_connect~1|")


def test_equal_architectures_share_a_form() -> None:
    posterior = Posterior(flat("nasbench201"), "nasbench201")
    dead = [posterior.architecture([op, 0, 0, 3, 0, 0]) for op in (1, 3)]  # node 1 leads nowhere
    assert dead[0] != dead[1]
    assert posterior.form(dead[0]) == posterior.form(dead[1])
    with pytest.raises(InvalidArchitecture):
        posterior.form("none")


def test_darts_has_a_decision_per_pair_of_inputs_and_per_edge() -> None:
    """The operations of the sampled pair make the architecture, and those of the other edges have no influence (note
    E6).
    """
    space = get_space("darts")
    decisions = space.posterior_decisions
    assert len(decisions) == 2 * (4 + 14)
    assert [d.name for d in decisions[3:7]] == ["normal_3_inputs", "normal_3<-0", "normal_3<-1", "normal_3<-2"]
    sharp = flat("darts")
    for name, choice in (("normal_3_inputs", "0,2"), ("normal_3<-0", "sep_conv_3x3"), ("normal_3<-2", "skip_connect")):
        choices = next(d.choices for d in decisions if d.name == name)
        sharp[name] = np.where(np.array(choices) == choice, 0.0, -np.inf)
    posterior = Posterior(sharp, "darts")
    drawn = posterior.draw((20,), np.random.default_rng(0))
    for row in drawn:
        architecture = space.decode(posterior.architecture(row))
        assert architecture[3:6] == ("0,2", "sep_conv_3x3", "skip_connect")
    other = drawn[0].copy()
    other[5] = (other[5] + 1) % 7  # normal_3<-1, which no node reads
    assert posterior.architecture(other) == posterior.architecture(drawn[0])


def test_a_space_of_the_user_is_named_by_reference(repository: Path) -> None:
    reference = f"{repository / 'examples' / 'own_space.py'}:ResidualSpace"
    posterior = pickle.loads(pickle.dumps(Posterior(flat(reference), reference)))
    drawn = posterior.draw((), np.random.default_rng(0))
    assert posterior.form(posterior.architecture(drawn))


def test_a_space_with_a_continuous_constant_raises_an_error() -> None:
    with pytest.raises(InvalidInput, match="continuous constant"):
        Posterior({"bandwidth": [0.0]}, "fourier")
