"""Quantities of a run: key, label, unit and definition of each; formatting of numbers.

Terminal, report, JSON and tables use these keys and labels. Files contain accuracies as fractions; all other output
shows percent with two decimals. archray reports no error rates. A spread is the standard deviation (n - 1), with n.
"""

import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from archray.plurals import count
from archray.trainables.adversarial.attacks import ATTACKS

MISSING = "\N{EN DASH}"
MINUS = "\N{MINUS SIGN}"
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True)
class Quantity:
    """The format of a number.

    Attributes:
        label: name of the quantity.
        unit: unit of the displayed value.
        factor: displayed value per stored value.
        digits: decimals of the displayed value.
        significant: least number of significant digits, for values that are often small.
        meaning: definition, for the quantities in QUANTITIES.
    """

    label: str
    unit: str = ""
    factor: float = 1.0
    digits: int = 4
    meaning: str = ""
    significant: int = 0

    @property
    def axis(self) -> str:
        """The label of an axis."""
        return f"{self.label} ({self.unit})" if self.unit else self.label

    @property
    def heading(self) -> str:
        """The heading of a column: the label of an axis, capitalized."""
        return self.axis[:1].upper() + self.axis[1:]

    def show(self, value: object) -> str:
        """Formats a value with its unit."""
        text = self.bare(value)
        return text if text == MISSING or not self.unit else f"{text} {self.unit}"

    def text(self, value: object) -> str:
        """Formats a value with its label: `test accuracy 93.21 %`."""
        return f"{self.label} {self.show(value)}"

    def bare(self, value: object) -> str:
        """Formats a value without its unit, for a column or axis whose title has the unit."""
        number = as_float(value) * self.factor
        if math.isnan(number):
            return MISSING
        digits = self.digits
        if self.significant and number:
            digits = max(digits, self.significant - 1 - math.floor(math.log10(abs(number))))
        return signed(f"{number:,.{digits}f}")

    def spread(self, values: "Iterable[float] | Spread | None") -> str:
        """Formats `mean ± standard deviation unit`, or only the mean for one value. NaN values are ignored."""
        spread = values if isinstance(values, Spread) else Spread.of(() if values is None else values)
        if spread is None:
            return MISSING
        if spread.deviation is None:
            return self.show(spread.mean)
        unit = f" {self.unit}" if self.unit else ""
        return f"{self.bare(spread.mean)} ± {self.bare(spread.deviation)}{unit}"


@dataclass(frozen=True)
class Spread:
    """Mean and standard deviation of the finite values of one quantity.

    Attributes:
        mean: mean of the values.
        deviation: standard deviation (n - 1); None for one value.
        number: number n of values.
        noun: word for a value, such as `final training run` or `repeat`; may be empty.
    """

    mean: float
    deviation: float | None
    number: int
    noun: str = "value"

    @classmethod
    def of(cls, values: Iterable[object], noun: str = "value") -> "Spread | None":
        """Computes the spread of the finite values; None without finite values."""
        finite = [number for number in map(as_float, values) if not math.isnan(number)]
        if not finite:
            return None
        deviation = statistics.stdev(finite) if len(finite) > 1 else None
        return cls(statistics.fmean(finite), deviation, len(finite), noun)

    @classmethod
    def read(cls, document: Mapping[str, Any], key: str) -> "Spread | None":
        """Reads the spread that `entries` wrote under `key`; None if it is missing."""
        if document.get(key) is None:
            return None
        deviation, number = document.get(f"{key}_std"), document.get(f"{key}_n", 1)
        return cls(float(document[key]), deviation, int(number), str(document.get(f"{key}_each", "value")))

    def entries(self, key: str) -> dict[str, Any]:
        """Returns JSON entries: `KEY` (the mean), `KEY_std`, `KEY_n`, `KEY_each`; only `KEY` if `noun` is empty."""
        if not self.noun:
            return {key: self.mean}
        return {key: self.mean, f"{key}_std": self.deviation, f"{key}_n": self.number, f"{key}_each": self.noun}

    @property
    def words(self) -> str:
        """The statistic in words: `1 repeat`, `mean and standard deviation of 3 repeats`."""
        over = count(self.number, self.noun)
        return over if self.deviation is None else f"mean and standard deviation of {over}"


def points_between(gap: float) -> str:
    """Formats a difference of two fractions: `0.42 percentage points above`, or `equal to` if it rounds to 0.00.

    The caller appends the second value: `above the mean`, `equal to the mean`.
    """
    points = f"{abs(100 * gap):.2f}"
    return "equal to" if float(points) == 0 else f"{points} percentage points {'above' if gap > 0 else 'below'}"


def _accuracy(label: str, meaning: str) -> Quantity:
    return Quantity(label, "%", 100.0, 2, meaning)


def _test(detail: str, meaning: str) -> Quantity:
    return _accuracy(f"test accuracy ({detail})", meaning)


def _validation(detail: str, meaning: str) -> Quantity:
    return _accuracy(f"validation accuracy ({detail})", f"On the validation split, {meaning}")


_DEFENSES = {f"{name}_defense_accuracy": attack.title for name, attack in ATTACKS.registered().items()}
QUANTITIES: Mapping[str, Quantity] = {
    "test_accuracy": _accuracy(
        "test accuracy", "On the test split, after the final training; for an ensemble, with averaged predictions."
    ),
    "search_test_accuracy": _test(
        "search",
        "On the test split, for the best architecture of the search, as the search solved it. With shared solves, an "
        "oracle solves it alone. The search does not use this value.",
    ),
    "members_test_accuracy": _test("members", "On the test split, for each member of an ensemble alone: 1 - ATE."),
    "largest_test_accuracy": _test(
        "largest",
        "On the test split, for the network with the most parameters of the scored pool (without a pool, of 50 random "
        "architectures; in a small space, of all), trained like the found architecture.",
    ),
    "random_test_accuracy": _test(
        "random", "On the test split, for random architectures trained like the found architecture."
    ),
    "best_random_test_accuracy": _test(
        "best random",
        "On the test split, for the random architecture with the highest validation accuracy of K, where K is the "
        "number of training runs of the search. With more than K random architectures it is the mean over all choices "
        "of K; with fewer it is the best of all.",
    ),
    "others_test_accuracy": _test(
        "others",
        "On the test split, for all other architectures of a small space, trained like the found architecture.",
    ),
    "found_test_accuracy": _test(
        "found",
        "On the test split, for the architecture that the search found, if the result is another network. It has a "
        "better validation accuracy after the same training.",
    ),
    # An ensemble under attack, on the attacked test images; see docs/attack.md.
    "benign_accuracy": _test("benign", "Ensemble, on the unmodified images."),
    "benign_member_accuracy": _test("member, benign", "Attacked member, on the unmodified images."),
    "attack_accuracy": _test("attack", "Attacked member, on its adversarial images."),
    "transfer_accuracy": _test("transfer", "Other members alone, on the attacked member's adversarial images."),
    "defense_accuracy": _test("defense", "Ensemble, on the attacked member's adversarial images."),
    "noise_member_accuracy": _test("member, noise", "Attacked member, on images with random noise of the same size."),
    "noise_accuracy": _test("noise", "Ensemble, on images with random noise of the same size."),
    **{
        key: _test(f"defense, {title}", f"Same as defense_accuracy, under {title}.") for key, title in _DEFENSES.items()
    },
    "validation_accuracy": _validation(
        "search",
        "with weights that the search trained for this architecture alone. In a table of trials of another stage, with "
        "the weights of that stage.",
    ),
    "selection_accuracy": _validation("selection", "after the last epoch of the selection."),
    "final_accuracy": _validation("final training", "after the final training, for the network that is the result."),
    "shared_accuracy": _validation("shared weights", "with weights that many architectures share."),
    "mixture_accuracy": _validation(
        "mixture", "for a supernet's mixture of all operations, or for the paths that it samples."
    ),
    "largest_accuracy": _validation("largest", "for the largest network, with a supernet's weights."),
    "smallest_accuracy": _validation("smallest", "for the smallest network, with a supernet's weights."),
    "standalone_accuracy": _validation("alone", "with weights solved for this feature map alone."),
    "discretization_drop": Quantity(
        "accuracy lost by discretization", "percentage points", 100.0, 2, "mixture_accuracy - shared_accuracy."
    ),
    # Losses: mean cross-entropies.
    "train_loss": Quantity("training loss", meaning="On the training batches, before each step."),
    "validation_loss": Quantity("validation loss (search)", meaning="Same data and weights as validation_accuracy."),
    "shared_loss": Quantity("validation loss (shared weights)", meaning="Same data and weights as shared_accuracy."),
    "mixture_loss": Quantity("validation loss (mixture)", meaning="Same data and weights as mixture_accuracy."),
    "test_nll": Quantity("test NLL", meaning="Mean negative log-likelihood on the test split, in nats."),
    "score": Quantity("score", meaning="Mean validation loss or accuracy, as the configuration selects."),
    # The neural tangent kernel at initialization, by NASI.
    "trace": Quantity(
        "trace norm", digits=3, meaning="Approximate trace norm of the NTK per image, mean over samples."
    ),
    "reward": Quantity("reward", digits=3, meaning="trace - mu max(0, trace - nu), mean over samples."),
    "found_trace": Quantity("trace norm (found)", digits=3, meaning="Same as trace, for the most probable sample."),
    "found_reward": Quantity(
        "reward (found)",
        digits=3,
        meaning="Same as reward, for the most probable sample, divided by the mean trace norm of random samples.",
    ),
    "elbo": Quantity("ELBO", meaning="Evidence lower bound of the posterior, in nats."),
    # A search on a table of trained architectures, in the units of the table.
    "objective": Quantity("objective", meaning="Objective of an architecture in the table of a search."),
    "result": Quantity("result", meaning="Result of the found architecture in the table of a search."),
    "random_result": Quantity("result (random)", meaning="Result of random architectures in the table of a search."),
    "best_random_result": Quantity(
        "result (best random)",
        meaning="Result of the random architecture with the best objective of K, where K is the number of lookups of "
        "the search. See best_random_test_accuracy.",
    ),
    # An ensemble, on the test split.
    "ece": Quantity("ECE", "%", 100.0, 2, "Expected calibration error on the test split."),
    "ppd": Quantity("PPD", "%", 100.0, 2, "Share of test points for which two members predict different classes."),
    # Costs.
    "parameters": Quantity(
        "parameters", "M", 1e-6, 3, "Parameters of a network, mean over the final training runs.", 2
    ),
    "multiply_adds": Quantity(
        "multiply-adds", "M", 1e-6, 2, "Multiply-adds for one input, mean over the final training runs.", 2
    ),
    "flops": Quantity(
        "FLOPs", "M", 1e-6, 2, "Floating-point operations for one image by torch's counter: two per multiply-add.", 2
    ),
    "peak_memory": Quantity("peak memory", "KiB", 2.0**-10, 1, "Maximum memory of live activations for one image."),
    "latency_ms": Quantity("latency", "ms", 1.0, 3, "Latency of a batch, median of repeated passes."),
    "latency_ms_iqr": Quantity("latency (spread)", "ms", 1.0, 3, "Interquartile range of the passes' latency."),
    "expected_cost": Quantity(
        "expected cost", digits=0, meaning="Expected cost under the learned probabilities, in the unit of the cost."
    ),
    "cost_weight": Quantity("weight of the cost", digits=4, meaning="Weight of the penalty on the mixture's cost."),
    "trainings": Quantity(
        "training runs",
        digits=0,
        meaning="Networks, supernets or solves that the search, its selection and its final stage trained, and the "
        "networks for comparison if one of them can be the result. Solves of an oracle do not count.",
    ),
    "seconds": Quantity(
        "time",
        "s",
        1.0,
        1,
        "Wall-clock time of the run, from the start of its command to the end, summed over resumed commands.",
    ),
}
# The stage in the labels of `validation_accuracy` and `validation_loss`.
_OF_STAGE = {"selection": "selection"} | dict.fromkeys(("final", "members", "baseline"), "final training")
UNDER_ATTACK = tuple(_DEFENSES)  # quantities of an attacked ensemble
HEADLINE = "headline"  # in a run's JSON: the key of its headline, the lower one of two
# The best repeat has the highest value of the first available one.
DECIDING = ("final_accuracy", "selection_accuracy", "validation_accuracy", "shared_accuracy")


def quantity_of(key: str, stage: str = "search") -> Quantity:
    """Returns the quantity of a key; for a metric of the user, a quantity with the words of its key.

    Args:
        stage: stage of the trials.
    """
    quantity = QUANTITIES.get(key)
    if quantity is None:
        words = key.replace("_", " ")
        return _accuracy(words, "") if key.endswith(("accuracy", "error")) else Quantity(words)
    if stage in _OF_STAGE and key in ("validation_accuracy", "validation_loss"):
        return replace(quantity, label=quantity.label.replace("search", _OF_STAGE[stage]))
    return quantity


def deciding_value(result: Mapping[str, Any]) -> float:
    """Returns the validation accuracy that selected a result, the first of DECIDING; minus infinity if missing."""
    values = [as_float(result.get(key)) for key in DECIDING]
    return next((value for value in values if not math.isnan(value)), -math.inf)


def data_words(name: str, limit: int | None) -> str:
    """Formats a data set and its limit: `cifar10`, or `cifar10 (at most 2,000 points per part)`."""
    return name if limit is None else f"{name} (at most {count(limit, 'point')} per part)"


def as_float(value: object) -> float:
    """Converts `value` to a float; NaN if it is not a finite number."""
    try:
        number = float(value)  # type: ignore[arg-type]  # any value of a data frame
    except (TypeError, ValueError, OverflowError):
        return math.nan
    return number if math.isfinite(number) else math.nan


def signed(text: str) -> str:
    """Replaces the hyphen of a formatted number by a minus sign, and thousands commas by narrow spaces."""
    return text.replace("-", MINUS).replace(",", "\N{NARROW NO-BREAK SPACE}")


def significant(value: object, digits: int = 3) -> str:
    """Formats a number of any magnitude: `0.0123`, `42`, `1.2 × 10⁶`."""
    number = as_float(value)
    if math.isnan(number):
        return MISSING
    if number == 0:
        return "0"
    exponent = math.floor(math.log10(abs(number)))
    if -4 < exponent < 6:
        decimals = max(digits - 1 - exponent, 0)
        return signed(f"{number:,.{decimals}f}")
    return f"{signed(f'{number / 10**exponent:.{digits - 1}f}')} × {power_of_ten(exponent)}"


def power_of_ten(exponent: int) -> str:
    """Formats `10⁻³` in Unicode, so that it stays text in a plot and uses the page's font."""
    return "10" + str(exponent).translate(_SUPERSCRIPTS)


def whole_number(value: object) -> str:
    """Formats a count in a table: `15 625`."""
    number = as_float(value)
    return MISSING if math.isnan(number) else signed(f"{number:,.0f}")


def duration(seconds: object) -> str:
    """Formats a duration: `42 s`, `5 min 03 s`, `2 h 07 min`."""
    number = as_float(seconds)
    if math.isnan(number) or number < 0:
        return MISSING
    whole = round(number)
    if number < 10:
        return f"{number:.1f} s"
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
