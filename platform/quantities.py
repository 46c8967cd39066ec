"""Every quantity of a run, defined once: its key, label and unit, its split and weights; numbers in words.

Terminal, report, JSON and tables take keys and labels from here. Accuracies are fractions in files, and percent with
two decimals elsewhere; there are no error rates. A spread is the standard deviation (n - 1), with n.
"""

import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from archray.plurals import count

MISSING = "\N{EN DASH}"
MINUS = "\N{MINUS SIGN}"
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True)
class Quantity:
    """The format of a number: `label` in words, values times `factor` in `unit`, with `digits` decimals.

    meaning: its definition, in a sentence; for the quantities in QUANTITIES.
    """

    label: str
    unit: str = ""
    factor: float = 1.0
    digits: int = 4
    meaning: str = ""

    @property
    def axis(self) -> str:
        """The label of an axis."""
        return f"{self.label} ({self.unit})" if self.unit else self.label

    @property
    def heading(self) -> str:
        """The heading of a column: the label of an axis with a capital."""
        return self.axis[:1].upper() + self.axis[1:]

    def show(self, value: object) -> str:
        """One value with its unit."""
        text = self.bare(value)
        return text if text == MISSING or not self.unit else f"{text} {self.unit}"

    def text(self, value: object) -> str:
        """One value with its label: `test accuracy 93.21 %`."""
        return f"{self.label} {self.show(value)}"

    def bare(self, value: object) -> str:
        """One value without its unit, for a column or axis that names it."""
        number = as_float(value)
        return MISSING if math.isnan(number) else signed(f"{number * self.factor:,.{self.digits}f}")

    def spread(self, values: "Iterable[float] | Spread | None") -> str:
        """`mean ± standard deviation unit`; for one value the mean alone. NaN are left out."""
        spread = values if isinstance(values, Spread) else Spread.of(() if values is None else values)
        if spread is None:
            return MISSING
        if spread.deviation is None:
            return self.show(spread.mean)
        unit = f" {self.unit}" if self.unit else ""
        return f"{self.bare(spread.mean)} ± {self.bare(spread.deviation)}{unit}"


@dataclass(frozen=True)
class Spread:
    """Mean and deviation of the finite values of one quantity.

    Attributes:
        mean: of the values. deviation: their standard deviation (n - 1); None for one value.
        number: n. each: the word for a value, as `final training`, `repeat`; may be empty.
    """

    mean: float
    deviation: float | None
    number: int
    each: str = "value"

    @classmethod
    def of(cls, values: Iterable[object], each: str = "value") -> "Spread | None":
        """The spread of the finite values; None without one."""
        finite = [number for number in map(as_float, values) if not math.isnan(number)]
        if not finite:
            return None
        deviation = statistics.stdev(finite) if len(finite) > 1 else None
        return cls(statistics.fmean(finite), deviation, len(finite), each)

    @classmethod
    def read(cls, document: Mapping[str, Any], key: str) -> "Spread | None":
        """The spread that `entries` wrote under `key`; None without one."""
        if document.get(key) is None:
            return None
        deviation, number = document.get(f"{key}_std"), document.get(f"{key}_n", 1)
        return cls(float(document[key]), deviation, int(number), str(document.get(f"{key}_each", "value")))

    def entries(self, key: str) -> dict[str, Any]:
        """For JSON: `KEY` the mean, `KEY_std`, `KEY_n`, `KEY_each`; the mean alone if `each` is empty."""
        if not self.each:
            return {key: self.mean}
        return {key: self.mean, f"{key}_std": self.deviation, f"{key}_n": self.number, f"{key}_each": self.each}

    @property
    def words(self) -> str:
        """The numbers in words: `1 final training`, `mean and standard deviation of 3 final trainings`."""
        over = count(self.number, self.each)
        return over if self.deviation is None else f"mean and standard deviation of {over}"


def points_between(gap: float) -> str:
    """A difference of two accuracies or errors, fractions: `0.42 percentage points above`; `equal to` if that is 0.00.

    The words for the second value follow: `above the mean`, `equal to the mean`.
    """
    points = f"{abs(100 * gap):.2f}"
    return "equal to" if float(points) == 0 else f"{points} percentage points {'above' if gap > 0 else 'below'}"


def _accuracy(label: str, meaning: str) -> Quantity:
    return Quantity(label, "%", 100.0, 2, meaning)


def _test(detail: str, meaning: str) -> Quantity:
    return _accuracy(f"test accuracy ({detail})", meaning)


def _validation(detail: str, meaning: str) -> Quantity:
    return _accuracy(f"validation accuracy ({detail})", f"On the validation split, {meaning}")


_ATTACKS = {"fgsm": "FGSM", "pgd": "PGD", "cw": "CW", "autoattack": "AutoAttack"}
QUANTITIES: Mapping[str, Quantity] = {
    "test_accuracy": _accuracy(
        "test accuracy", "On the test split, of the final training; of an ensemble, of its averaged predictions."
    ),
    "search_test_accuracy": _test(
        "search",
        "On the test split, of the best architecture by the search, as the search solved it; where solves are shared, "
        "solved for alone by an oracle. No search sees it.",
    ),
    "members_test_accuracy": _test("members", "On the test split, of each member of an ensemble alone: 1 - ATE."),
    "random_test_accuracy": _test("random", "On the test split, of random architectures trained as the found one."),
    # Of an ensemble under attack, on the test images that were attacked; see docs/attack.md.
    "benign_accuracy": _test("benign", "Of the ensemble, on these images as they are."),
    "benign_member_accuracy": _test("member, benign", "Of the attacked member, on these images."),
    "attack_accuracy": _test("attack", "Of the attacked member, on its adversarial images."),
    "transfer_accuracy": _test("transfer", "Of the other members alone, on the attacked member's adversarial images."),
    "defence_accuracy": _test("defence", "Of the ensemble, on the adversarial images of the attacked member."),
    "noise_member_accuracy": _test("member, noise", "As noise_accuracy, of the attacked member."),
    "noise_accuracy": _test("noise", "Of the ensemble, on images with random noise of the same size."),
    **{
        f"{name}_defence_accuracy": _test(f"defence, {title}", f"As defence_accuracy, under {title}.")
        for name, title in _ATTACKS.items()
    },
    "validation_accuracy": _validation(
        "search",
        "of weights trained for this architecture alone, by the search. In a table of trials of another stage, by that "
        "stage.",
    ),
    "selection_accuracy": _validation("selection", "after the last epoch in the selection."),
    "final_accuracy": _validation("final training", "of the final training."),
    "shared_accuracy": _validation("shared weights", "with weights that many architectures share."),
    "mixture_accuracy": _validation(
        "mixture", "of a supernet's mixture of all operations, or of the paths that it draws."
    ),
    "largest_accuracy": _validation("largest", "of the largest network, with a supernet's weights."),
    "smallest_accuracy": _validation("smallest", "of the smallest network, with a supernet's weights."),
    "standalone_accuracy": _validation("alone", "of weights solved for this feature map alone."),
    "discretisation_drop": Quantity(
        "accuracy lost by discretisation", "percentage points", 100.0, 2, "mixture_accuracy - shared_accuracy."
    ),
    # Losses: mean cross-entropies.
    "train_loss": Quantity("training loss", meaning="Of the training batches, before each step."),
    "validation_loss": Quantity("validation loss (search)", meaning="As validation_accuracy."),
    "shared_loss": Quantity("validation loss (shared weights)", meaning="As shared_accuracy."),
    "mixture_loss": Quantity("validation loss (mixture)", meaning="As mixture_accuracy."),
    "test_nll": Quantity("test NLL", meaning="Mean negative log-likelihood on the test split, nats."),
    "score": Quantity("score", meaning="Mean validation loss, or accuracy, by what the configuration scores."),
    # Of the neural tangent kernel at initialisation, by NASI.
    "trace": Quantity("trace norm", digits=3, meaning="Of the NTK, approximated, per image: the mean over samples."),
    "reward": Quantity("reward", digits=3, meaning="trace - mu max(0, trace - nu), the mean over samples."),
    "found_trace": Quantity("trace norm (found)", digits=3, meaning="As trace, of the most probable sample."),
    "found_reward": Quantity(
        "reward (found)",
        digits=3,
        meaning="As reward, of the most probable sample, over random samples' mean trace norm.",
    ),
    "elbo": Quantity("ELBO", meaning="Evidence lower bound of the posterior, nats."),
    # Of a search on a table of trained architectures, in the table's own units.
    "objective": Quantity("objective", meaning="Value of an architecture in the table of a search."),
    "result": Quantity("result", meaning="What the table says of the found architecture, by which it is judged."),
    "random_result": Quantity("result (random)", meaning="The same, of random architectures of the table."),
    # Of an ensemble, on the test split.
    "ece": Quantity("ECE", "%", 100.0, 2, "Expected calibration error on the test split."),
    "ppd": Quantity("PPD", "%", 100.0, 2, "Share of test points on which two members predict different classes."),
    # Costs.
    "parameters": Quantity("parameters", "M", 1e-6, 3, "Of a network of the final training, the mean over them."),
    "multiply_adds": Quantity("multiply-adds", "M", 1e-6, 2, "Of one input to such a network, the mean over them."),
    "flops": Quantity(
        "FLOPs", "M", 1e-6, 2, "Floating-point operations of one image, by torch's counter: two for a multiply-add."
    ),
    "peak_memory": Quantity("peak memory", "KiB", 2.0**-10, 1, "Activations of one image alive at once, at most."),
    "latency_ms": Quantity("latency", "ms", 1.0, 3, "Of a batch, the median of repeated passes."),
    "latency_ms_iqr": Quantity("latency (spread)", "ms", 1.0, 3, "Between the quartiles of the passes."),
    "expected_cost": Quantity("expected cost", digits=0, meaning="Of the learnt probabilities, in its own unit."),
    "cost_weight": Quantity("weight of the cost", digits=4, meaning="Of the penalty on what the mixture costs."),
    "trainings": Quantity(
        "trainings",
        digits=0,
        meaning="Networks, supernets or solves that the search, its selection and its final stage trained; not what is "
        "there to compare with, as random architectures and an oracle's solves.",
    ),
    "seconds": Quantity(
        "time",
        "s",
        1.0,
        1,
        "Of the run by the clock, from the start of its command to the end; of a resumed run, of all its commands.",
    ),
}
# The weights of `validation_accuracy` and `validation_loss` in trials of a stage.
_OF_STAGE = {"selection": "selection"} | dict.fromkeys(("final", "members", "baseline"), "final training")
UNDER_ATTACK = tuple(f"{name}_defence_accuracy" for name in _ATTACKS)  # of an ensemble that was attacked
HEADLINE = "headline"  # in a run's JSON: the key of its headline, the lower one of two
DECIDING = ("selection_accuracy", "validation_accuracy", "shared_accuracy")  # a run chose its result by the first one


def quantity_of(key: str, stage: str = "search") -> Quantity:
    """The quantity of a key; for another key, a user's metric, its words. stage: of the trials."""
    quantity = QUANTITIES.get(key)
    if quantity is None:
        words = key.replace("_", " ")
        return _accuracy(words, "") if key.endswith(("accuracy", "error")) else Quantity(words)
    if stage in _OF_STAGE and key in ("validation_accuracy", "validation_loss"):
        return replace(quantity, label=quantity.label.replace("search", _OF_STAGE[stage]))
    return quantity


def deciding_value(result: Mapping[str, Any]) -> float:
    """The validation accuracy by which a result was chosen, the first of DECIDING; minus infinity without one."""
    values = [as_float(result.get(key)) for key in DECIDING]
    return next((value for value in values if not math.isnan(value)), -math.inf)


def as_float(value: object) -> float:
    """`value` as a float, NaN if it is none or not finite."""
    try:
        number = float(value)  # type: ignore[arg-type]  # anything a frame may hold
    except (TypeError, ValueError, OverflowError):
        return math.nan
    return number if math.isfinite(number) else math.nan


def signed(text: str) -> str:
    """A formatted number with a true minus sign, and its thousands set apart."""
    return text.replace("-", MINUS).replace(",", "\N{NARROW NO-BREAK SPACE}")


def significant(value: object, digits: int = 3) -> str:
    """A number of unknown size: `0.0123`, `42`, `1.2 × 10⁶`."""
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
    """`10⁻³`, in Unicode: it stays text in a plot and takes the page's font."""
    return "10" + str(exponent).translate(_SUPERSCRIPTS)


def whole_number(value: object) -> str:
    """A count in a table: `15 625`."""
    number = as_float(value)
    return MISSING if math.isnan(number) else signed(f"{number:,.0f}")


def duration(seconds: object) -> str:
    """`42 s`, `5 min 03 s`, `2 h 07 min`."""
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
