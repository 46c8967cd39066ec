"""How many trials share a card where `trials_per_gpu` is auto: measured as a stage begins, and kept with it."""

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

import ray
from ray.tune.search import Searcher
from ray.tune.search.variant_generator import generate_variants

from archray.cluster.settings import AUTO, ResourceSettings
from archray.errors import InvalidInput
from archray.files import Folder
from archray.platform.engine.stage import Context
from archray.platform.engine.trial_plan import TrialPlan
from archray.trainables.tune.trial import MemoryProbe

TRIALS_PER_GPU = "trials_per_gpu.json"
GB = 10**9
CONTEXT_BYTES = GB // 2  # of a card, that a process with CUDA takes beside what torch's allocator holds
MARGIN = 0.1  # of a card, for what a few batches do not show: fragments, another architecture's activations
AT_MOST = 16  # trials on a card: beyond they wait for its arithmetic, and each takes a process and its main memory
CANDIDATES = 4  # trials that are measured: the first that the plan names, whose largest counts


def trials_that_fit(taken: int, card: int) -> int:
    """How many trials a card holds, 1 to `AT_MOST`. taken: bytes that torch holds for one. card: the card's bytes."""
    return max(1, min(AT_MOST, int((1 - MARGIN) * card / (taken + CONTEXT_BYTES))))


def with_shared_cards(
    folder: Folder, plan: TrialPlan, context: Context[Any], resources: ResourceSettings
) -> ResourceSettings:
    """The resources with a number in the place of `auto`: that which the stage began with.

    The number stays when a run goes on: how many trials run at a time depends on it, and so what is suggested.
    Raises: InvalidInput where Ray has GPUs that torch does not see.
    """
    if resources.trials_per_gpu != AUTO:
        return resources
    if resources.gpus() == 0:
        context.say("the cluster has no GPU for trials to share: they run on CPUs")
        return resources
    if plan.workers > 1:
        context.say("workers of one training do not share a card: each has its own")
        return resources.model_copy(update={"trials_per_gpu": 1})
    stage = folder.parent
    if not stage.exists(TRIALS_PER_GPU):
        stage.write_json(TRIALS_PER_GPU, _measured(plan, resources))
    told = stage.read_json(TRIALS_PER_GPU)
    context.say(sharing_told(told))
    return resources.model_copy(update={"trials_per_gpu": int(told["trials_per_gpu"])})


def sharing_told(told: Mapping[str, Any]) -> str:
    """`a trial takes 3.1 GB of 24: 6 at a time on a card`. told: what the stage keeps."""
    number = told["trials_per_gpu"]
    if told["taken"] is None:
        return f"the memory of a trial is unknown, it failed: {told['failure']}; {number} at a time on a card"
    return f"a trial takes {told['taken'] / GB:.1f} GB of {told['card'] / GB:.0f}: {number} at a time on a card"


def _measured(plan: TrialPlan, resources: ResourceSettings) -> dict[str, Any]:
    """What is kept of the measurement. Raises: InvalidInput where torch sees no card."""
    needs: dict[str, Any] = {"num_cpus": resources.cpus_per_trial, "num_gpus": 1, "resources": resources.custom}
    probe: Any = ray.remote(MemoryProbe).options(**needs).remote()
    try:
        measured: dict[str, Any] = ray.get(probe.measure.remote(plan.trainable, plan.settings, first_configs(plan)))
    finally:
        ray.kill(probe)
    card, taken = measured["card"], measured["taken"]
    if card is None:
        raise InvalidInput(
            "trials_per_gpu=auto measures a trial on a CUDA card, and torch sees none in a worker that Ray gave a GPU; "
            "give a number, --trials-per-gpu 2, or see why torch.cuda.is_available() is false there"
        )
    number = 1 if taken is None else trials_that_fit(taken, card)
    failure = next(iter(measured["failures"]), None) if taken is None else None
    return {"trials_per_gpu": number, "taken": taken, "card": card, "failure": failure}


def first_configs(plan: TrialPlan, at_most: int = CANDIDATES) -> Sequence[dict[str, Any]]:
    """The configurations, without `settings`, of the first trials that a plan names before any has a result."""
    if plan.searcher is None:
        return [dict(spec["config"]) for _, spec in islice(generate_variants({"config": plan.keys}), at_most)]
    searcher: Any = plan.searcher()  # a fresh one, of which nothing is kept
    searcher.set_search_properties(plan.metric, plan.mode, {})
    searcher.set_max_concurrency(at_most)
    configs: list[dict[str, Any]] = []
    for number in range(at_most):
        config = searcher.suggest(f"probe-{number}")
        if config is None or config == Searcher.FINISHED:
            break
        configs.append({**plan.keys, **config})
    return configs
