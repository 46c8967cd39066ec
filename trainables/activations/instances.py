"""Instances (inputs, labels, initial weights) and the theorems' conditions on them. Roberts et al. 2022."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from archray.errors import InvalidInput
from archray.plurals import count
from archray.seeds import named_seed
from archray.trainables.activations import two_layer
from archray.trainables.activations.settings import OWN_INPUTS, ActivationOptions
from archray.trainables.activations.two_layer import Sample, mixture_outputs, output_weights, squared_risks
from archray.trainables.data import DataSettings, load_images

FEWEST = 30  # minimum number of points of a data set for the risks


@dataclass(frozen=True)
class Pool:
    """The points of a data set: inputs (N, d), with mean 0 and variance 1 per coordinate, and labels (N,), +1 and -1.

    A coordinate without variance is 0. The upper half of the classes has +1; with one class there are no labels.
    """

    inputs: Tensor
    labels: Tensor | None

    @classmethod
    def load(cls, data: DataSettings, device: torch.device | str = "cpu") -> "Pool | None":
        """Loads all parts of a data set of images together; None for Gaussian inputs, which are drawn. Raises: as
        loaders."""
        if data.name == OWN_INPUTS:
            return None
        dataset = load_images(data, device)
        parts = (dataset.train, dataset.validation, dataset.test)
        inputs = torch.cat([part.images.flatten(1) for part in parts]).double()
        classes = torch.cat([part.labels for part in parts])
        inputs = inputs - inputs.mean(0)
        deviations = inputs.std(0)
        inputs = inputs / deviations.where(deviations > 0, 1.0)
        present = classes.unique()
        upper = classes >= present[len(present) // 2]
        return cls(inputs, 2.0 * upper.double() - 1.0 if len(present) > 1 else None)

    def check(self, options: ActivationOptions, name: str, *, labeled: bool) -> None:
        """Raises: InvalidInput for too few points, or for `labeled` data without two classes."""
        needed = options.samples + options.validation + FEWEST
        if len(self.inputs) < needed:
            raise InvalidInput(
                f"expected {needed} or more points ({options.samples} to train, {options.validation} to validate, "
                f"{FEWEST} for the risks), got {count(len(self.inputs), 'point')} of {name}. "
                "Lower samples and validation"
            )
        if labeled and self.labels is None:
            raise InvalidInput(
                f"expected data with two or more classes for the labels `data`, got one class of {name}. "
                "Leave data out of --labels"
            )


@dataclass(frozen=True)
class Instances:
    """S instances on one device, in float64, because the theorems compare risks with small differences.

    Attributes:
        training, validation, risk: Samples without common points.
        initial: W, (S, k, d).
        output: v, (k,).
        teacher: alpha* of realizable labels, (S, h); NaN for others.
        largest: For each, the largest eigenvalue of E x x^T over the training sample, (S,).
    """

    training: Sample
    validation: Sample
    risk: Sample
    initial: Tensor
    output: Tensor
    teacher: Tensor

    @property
    def largest(self) -> Tensor:
        inputs = self.training.inputs
        return torch.linalg.eigvalsh(inputs.transpose(1, 2) @ inputs / inputs.shape[1])[:, -1]


def make_instances(
    options: ActivationOptions, labels: str, seeds: Sequence[int], pool: Pool | None, device: torch.device
) -> Instances:
    """Creates the instances of these seeds; each depends only on its seed.

    Labels are `realizable`: f_{sigma_alpha*}(x, W*) of a teacher in the class, alpha* uniform on the simplex, W* drawn
    like initial weights; `noisy`: the same with normal noise; `outside`: those of a teacher with another activation;
    `data`: those of a data set. For every kind, the teacher's weights, inputs and initial weights depend only on the
    seed.
    """
    instances = [_instance(options, labels, seed, pool) for seed in seeds]
    inputs, targets, initial, teacher = (torch.stack(column).to(device) for column in zip(*instances, strict=True))
    first, second = options.samples, options.samples + options.validation

    def part(start: int, end: int | None) -> Sample:
        return Sample(inputs[:, start:end].contiguous(), targets[:, start:end].contiguous())

    output = output_weights(options.width).to(device)
    return Instances(part(0, first), part(first, second), part(second, None), initial, output, teacher)


def _instance(
    options: ActivationOptions, labels: str, seed: int, pool: Pool | None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Returns inputs (n, d), labels (n,), initial weights (k, d) and alpha* (h,) of one instance, on the CPU."""
    total = options.samples + options.validation + options.risk_samples
    rows = None
    if pool is None:
        inputs = torch.randn(total, options.dimension, generator=_stream(seed, "inputs"), dtype=torch.float64)
    else:
        rows = torch.randperm(len(pool.inputs), generator=_stream(seed, "inputs"))[:total]
        inputs = pool.inputs.cpu()[rows]
    dimension = inputs.shape[1]
    initial = two_layer.draw_weights(options.width, dimension, _stream(seed, "initial"))
    alpha = torch.full((len(options.activations),), torch.nan, dtype=torch.float64)
    if labels == "data":
        if pool is None or pool.labels is None or rows is None:
            raise InvalidInput("expected data with two classes for the labels `data`, got none. Set data")
        return inputs, pool.labels.cpu()[rows], initial, alpha
    weights = two_layer.draw_weights(options.width, dimension, _stream(seed, "teacher"))
    names = (options.outside,) if labels == "outside" else options.activations
    functions = two_layer.get_activations(names)
    components = two_layer.component_outputs(inputs[None], weights[None], output_weights(options.width), functions)
    if labels == "outside":
        return inputs, components[0, :, 0], initial, alpha
    drawn = uniform_on_simplex(len(names), generator=_stream(seed, "alpha"))
    targets = mixture_outputs(components, drawn[None])[0]
    if labels == "noisy":
        noise = torch.randn(total, generator=_stream(seed, "noise"), dtype=torch.float64)
        noise = noise[: len(targets)] * options.noise * targets.std()
        return inputs, targets + noise, initial, alpha
    return inputs, targets, initial, drawn


def uniform_on_simplex(*shape: int, generator: torch.Generator) -> Tensor:
    """Draws (..., h) float64, each row uniform on the simplex: exponential variables divided by their sum."""
    drawn = -torch.rand(shape, generator=generator, dtype=torch.float64).clamp(min=1e-300).log()
    return drawn / drawn.sum(-1, keepdim=True)


def _stream(seed: int, purpose: str) -> torch.Generator:
    return torch.Generator().manual_seed(named_seed(seed, purpose))


# Conditions 3 and 6 on an instance, and the conclusions of Theorems 1, 4 and 7. Section 4; note U4.


TIE = 1e-12  # relative to the larger of two numbers; float64 does not distinguish closer ones


def without(alpha: Tensor) -> Tensor:
    """Computes Lemma 5 (Lemma 2 for h = 3): gamma, (..., h) -> (..., h, h), row i with entry i zero and sum 1.

    alpha_k = (1 - alpha_i) gamma_k for k != i. For alpha_i = 1 the row is NaN.
    """
    h = alpha.shape[-1]
    others = alpha.unsqueeze(-2).expand(*alpha.shape, h) * (1 - torch.eye(h, dtype=alpha.dtype, device=alpha.device))
    return others / others.sum(-1, keepdim=True)


@dataclass(frozen=True)
class SharedRisks:
    """Population risks of S instances with the weights that a search returned, on a sample.

    Attributes:
        alpha: (S, h), on the simplex.
        discrete: L(f_{sigma_i}(W)), (S, h).
        mixture: L(f_{sigma_alpha}(W)), (S,).
        distances: D_i = L(f_{sigma_i}, f_{sum_k gamma_k sigma_k}), (S, h), gamma by Lemma 5 without i.
    """

    alpha: Tensor
    discrete: Tensor
    mixture: Tensor
    distances: Tensor

    @classmethod
    def of(cls, components: Tensor, labels: Tensor, alpha: Tensor) -> "SharedRisks":
        """components: G, (S, n, h). labels: (S, n). alpha: (S, h)."""
        moments = torch.einsum("sni,snj->sij", components, components) / components.shape[1]  # E[G^T G], (S, h, h)
        steps = torch.eye(alpha.shape[-1], dtype=alpha.dtype, device=alpha.device) - without(alpha)  # (S, h, h)
        distances = torch.einsum("sik,skl,sil->si", steps, moments, steps) / 2
        mixture = squared_risks(mixture_outputs(components, alpha), labels)
        return cls(alpha, squared_risks(components, labels), mixture, distances)


def larger(one: Tensor, other: Tensor) -> Tensor:
    """Whether one > other by more than rounding."""
    return one - other > TIE * torch.maximum(one.abs(), other.abs())


@dataclass(frozen=True)
class Pairs:
    """Premises and conclusions for every ordered pair (i, j) of activations, each (S, h, h) bool.

    Attributes:
        ordered: L(f_i) < L(f_j), the premise of the theorems (Assumption 1 for the pair).
        condition: Condition 6, which is Condition 3 for h = 3: D_i >= D_j. With h = 2 it always holds. For an alpha
            of 1 there is no D, and no condition.
        conclusion: alpha_j < alpha_i.
        margin: sqrt L_j - sqrt L_i > 2 sqrt L(f_alpha): sufficient with `ordered` and `condition` if the labels are
            not realizable.
    """

    ordered: Tensor
    condition: Tensor
    conclusion: Tensor
    margin: Tensor

    @classmethod
    def of(cls, risks: SharedRisks) -> "Pairs":
        rows, columns = risks.discrete.unsqueeze(-1), risks.discrete.unsqueeze(-2)
        apart = columns.sqrt() - rows.sqrt()
        finite = risks.distances.isfinite().unsqueeze(-1) & risks.distances.isfinite().unsqueeze(-2)
        return cls(
            ordered=larger(columns, rows),
            condition=finite & ~larger(risks.distances.unsqueeze(-2), risks.distances.unsqueeze(-1)),
            conclusion=larger(risks.alpha.unsqueeze(-1), risks.alpha.unsqueeze(-2)),
            margin=larger(apart, 2 * risks.mixture.sqrt()[:, None, None]),
        )

    @property
    def violations(self) -> Tensor:
        """Where premise and condition are true and the conclusion is false: (S, h, h) bool."""
        return self.ordered & self.condition & ~self.conclusion
