"""Stage 2 of GAEA: what was found begins the full schedule, and the worst are dropped. Li et al. 2021, C.1.2-C.1.3."""

from __future__ import annotations

import pandas as pd
from ray import tune

from archray.errors import ArchrayError
from archray.files import Folder
from archray.platform.engine.stage import Context
from archray.platform.engine.trial_plan import TrialPlan
from archray.platform.engine.trial_tables import reasons
from archray.platform.engine.tuning import TuneRun, TuneStage
from archray.platform.methods.supernets.search_seeds import FOUND_CELLS, SELECTED
from archray.platform.methods.supernets.supernet_config import SupernetSearchConfig
from archray.platform.methods.training_stages import ACCURACY, training_plan, trainings
from archray.platform.quantities import quantity_of
from archray.platform.run.layout import FOUND
from archray.plurals import count
from archray.searchers.drop_worst import DropWorst

SELECTION = "selection_accuracy"


def _architectures(context: Context[SupernetSearchConfig]) -> list[str]:
    """The distinct architectures that the search seeds found, in the order of the seeds."""
    table = context.run.table("search", FOUND_CELLS)
    return list(dict.fromkeys(table.loc[table["failure"].isna(), "architecture"].dropna()))


def _trials(context: Context[SupernetSearchConfig], tuned: Folder) -> TrialPlan | None:
    config, architectures = context.config, _architectures(context)
    if len(architectures) == 1:
        context.say("one architecture was found; there is nothing to select from")
        tuned.parent.write_json(FOUND, context.folder("search").read_json(FOUND))
        return None
    count, keep = len(architectures), config.selection.keep

    def drop_worst() -> DropWorst:
        return DropWorst(trials=count, keep=keep, at=config.selection.epoch, time_attr="epoch")

    return training_plan(
        context,
        config.final,
        test=False,
        total=count,
        keys={"architecture": tune.grid_search(architectures), "seed": context.seed("selection")},
        scheduler=drop_worst if keep < count else None,
        limited=False,
    )


def _select(context: Context[SupernetSearchConfig], folder: Folder, run: TuneRun) -> None:
    selected = selection_table(run.trials, run.curves, context.config)
    folder.write_parquet(SELECTED, selected)
    usable = selected[selected["kept"] & selected[SELECTION].notna()]
    if usable.empty:
        raise ArchrayError(f"none of {count(len(selected), 'architecture')} was trained: {run.failures}")
    best = usable.iloc[0]  # the table is sorted
    value, name = float(best[SELECTION]), best["architecture"]
    cells = context.run.table("search", FOUND_CELLS)
    before = context.folder("search").read_json(FOUND)["metric"]  # what the search seeds were compared by
    at_search = float(cells.loc[cells["architecture"] == name, before].max())
    found = {"architecture": name, "value": value, "metric": SELECTION, SELECTION: value, before: at_search}
    folder.write_json(FOUND, found)
    context.say(
        f"selected {name}  ({quantity_of(SELECTION).told(value)}; {len(usable)} of {len(selected)} trained to the end)"
    )


def selection_table(trials: pd.DataFrame, curves: pd.DataFrame, config: SupernetSearchConfig) -> pd.DataFrame:
    """A row per architecture: `architecture`, `epochs` that it was trained, `accuracy_at_cut` at the epoch of the
    selection, `selection_accuracy` after its last epoch, `kept` (trained to the end), `failure`."""
    at_cut = curves[curves["epoch"] == config.selection.epoch].set_index("trial_id")[ACCURACY]
    return pd.DataFrame(
        {
            "architecture": trials["architecture"],
            "epochs": trials["epoch"],
            "accuracy_at_cut": trials["trial_id"].map(at_cut),
            SELECTION: trials[ACCURACY],
            "kept": (trials["epoch"] == config.final.epochs),
            "failure": reasons(trials),
        }
    ).sort_values(SELECTION, ascending=False, kind="stable", ignore_index=True)


SELECTION_STAGE = TuneStage[SupernetSearchConfig](
    name="selection",
    title="begin to train what was found, and drop the worst",
    reads=("network", "final", "selection"),
    depends=lambda context: {"found": _architectures(context)},
    plan=_trials,
    finish=_select,
    amount=lambda config: (
        f"at most {trainings(config.search_seeds, config.final)}; after {count(config.selection.epoch, 'epoch')} "
        f"all but the best {config.selection.keep} stop"
    ),
)
