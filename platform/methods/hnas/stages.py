"""HNAS: Bayesian optimization of the (mu, nu) of a training-free objective. Shu 2022, ch. 7, Alg. 7.1, Eq. 7.7."""

from dataclasses import replace
from typing import TYPE_CHECKING

from archray.errors import ArchrayError
from archray.files import Folder
from archray.platform.engine.pool_scoring import POOL
from archray.platform.engine.settings import distinct, exhausted
from archray.platform.engine.stage import Context, file_digests
from archray.platform.engine.trial_plan import TrialPlan
from archray.platform.engine.tuning import TuneRun, TuneStage
from archray.platform.methods import stages
from archray.platform.methods.hnas.config import HNASConfig
from archray.platform.methods.recipe import Recipe
from archray.platform.quantities import quantity_of
from archray.platform.run.layout import FOUND
from archray.plurals import count
from archray.trainables.spaces import get_space

if TYPE_CHECKING:
    from archray.searchers import HNASSearch

MAX_CONCURRENT = 4  # with more trials in flight, the optimizer has too few results per decision


def _trials(context: Context[HNASConfig], tuned: Folder) -> TrialPlan:
    config, pool = context.config, (context.folder("pool") / POOL).uri
    options = config.search.model_dump() | {"proxy": config.proxy}

    def searcher() -> "HNASSearch":
        from archray.searchers import HNASSearch  # SciPy

        return HNASSearch(pool, seed=context.seed("search"), **options)

    budget = _budget(config, context.run.space)
    if line := exhausted(budget, config.search.budget):
        context.say(line)
    return replace(stages.search_plan(context, tuned, searcher, at_most=MAX_CONCURRENT, fixed=True), total=budget)


def _budget(config: HNASConfig, space: str) -> int:
    """Returns the number of training runs: a repeated question is answered without one."""
    return distinct(config.search.budget, get_space(space), config.pool)


def _write_found(context: Context[HNASConfig], folder: Folder, run: TuneRun) -> None:
    searcher: HNASSearch = run.searcher()
    stages.write_state(folder, run)
    objective = {
        "proxy": searcher.proxy,
        "scale": searcher.pool.factor,
        "penalty": searcher.penalty,
        "log10_mu": list(searcher.log10_mu),
        "root_nu": [searcher.coordinates.target(0.0), searcher.coordinates.target(1.0)],
        "epsilon": searcher.epsilon,
        "pool": len(searcher.pool),
        "excluded": searcher.pool.excluded,
    }
    folder.write_json("objective.json", objective)
    folder.write_parquet("suggestions.parquet", searcher.questions())
    best = searcher.best()
    if best is None:
        raise ArchrayError(f"none of {count(len(run.trials), 'trial')} reported an accuracy: {run.failures}")
    folder.write_json(FOUND, {**best, "metric": stages.ACCURACY})
    context.say(f"best architecture {best['architecture']}  ({quantity_of(stages.ACCURACY).text(best['value'])})")


RECIPE = Recipe[HNASConfig](
    stages=(
        stages.POOL_STAGE,
        TuneStage(
            name="search",
            title="train the architectures that the objective selects, and optimize (mu, nu)",
            reads=("network", "train", "search"),
            depends=file_digests(f"pool/{POOL}"),
            plan=_trials,
            finish=_write_found,
            search=True,
            extends=True,
            amount=lambda config: stages.training_amount(_budget(config, config.space), config.train),
        ),
        stages.FINAL_STAGE,
        stages.BASELINE_STAGE,
    ),
    report_at="archray.platform.methods.hnas.report:REPORT",
)
