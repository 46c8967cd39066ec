"""The methods and studies by name, each with a summary and where it is. One is imported when it is chosen."""

from __future__ import annotations

from os import PathLike
from typing import Any

from archray.files import Folder
from archray.platform.methods.method import Method
from archray.platform.run.run import Run
from archray.platform.run.trust import Uses
from archray.registry import CatalogueRegistry

METHODS: CatalogueRegistry[Method] = CatalogueRegistry("method")  # of `archray search`
STUDIES: CatalogueRegistry[Method] = CatalogueRegistry("study")  # of `archray understand`

for _name, _place, _summary in (
    (
        "hnas",
        "hnas.config:HNAS",
        "Hybrid NAS: Bayesian optimisation over (mu, nu) of a training-free objective (Shu 2022, ch. 7)",
    ),
    ("random", "plain.config:RANDOM", "Random search, a short training of each architecture"),
    ("evolution", "plain.config:EVOLUTION", "Regularised (ageing) evolution (Real et al. 2019)"),
    ("local-search", "plain.config:LOCAL_SEARCH", "Local search: climbs from the best of a few (White 2021)"),
    ("reinforce", "plain.config:REINFORCE", "REINFORCE: a policy that learns from the accuracy (Williams 1992)"),
    (
        "asha",
        "plain.config:ASHA",
        "Ray Tune's asynchronous successive halving, epochs as resource (Li et al. 2020)",
    ),
    (
        "bohb",
        "plain.config:BOHB",
        "BOHB's model suggests, asynchronous successive halving ends trainings early (Falkner et al. 2018)",
    ),
    ("zero-cost", "plain.config:ZERO_COST", "The best of a pool by one training-free metric, trained"),
    (
        "zero-cost-evolution",
        "plain.config:ZERO_COST_EVOLUTION",
        "Evolution that begins with the best of a pool by one metric (Abdelfattah et al. 2021)",
    ),
    (
        "rank-surrogate",
        "several_metrics.config:RANK_SURROGATE",
        "A pool by several metrics at once, each weighed by the trainings: none of them can fool it",
    ),
    ("robot", "several_metrics.config:ROBOT", "RoBoT: learns weights of several metrics (He 2024)"),
    ("nsga2", "pareto.config:NSGA2", "NSGA-II: accuracy against costs, a set in the end (Deb et al. 2002)"),
    (
        "pareto-pool",
        "pareto.config:PARETO_POOL",
        "A pool whose costs are known first: trains what adds most to the front, a set in the end",
    ),
    ("darts", "supernets.config:DARTS", "DARTS, first order (Liu 2019)"),
    ("darts-2nd", "supernets.config:DARTS_2ND", "DARTS, second order (Liu 2019, Eq. 6-8)"),
    (
        "pc-darts",
        "supernets.config:PC_DARTS",
        "PC-DARTS: DARTS on a quarter of the channels, with edge normalisation (Xu 2020)",
    ),
    ("gdas", "supernets.config:GDAS", "GDAS: one drawn operation an edge, straight-through (Dong 2019)"),
    ("snas", "supernets.config:SNAS", "SNAS: mixtures drawn from a concrete distribution, single level (Xie 2019)"),
    ("gaea-darts", "supernets.config:GAEA_DARTS", "GAEA DARTS: exponentiated gradient on the simplex (Li 2021)"),
    (
        "gaea-pc-darts",
        "supernets.config:GAEA_PC_DARTS",
        "GAEA PC-DARTS: exponentiated gradient with partial channels (Li 2021)",
    ),
    ("gaea-gdas", "supernets.config:GAEA_GDAS", "GAEA GDAS: exponentiated gradient of drawn operations (Li 2021)"),
    ("xnas", "supernets.config:XNAS", "XNAS: exponentiated gradient, clipped per image, with wipe-out (Nayman 2019)"),
    (
        "enas",
        "supernets.config:ENAS",
        "ENAS: a controller that learns by reward from the supernet's accuracy (Pham 2018)",
    ),
    (
        "nasi",
        "nasi.config:NASI",
        "NASI: search at initialisation by the neural tangent kernel, without labels or data (Shu 2022, ch. 6)",
    ),
    ("rs-ws", "supernets.config:RS_WS", "Random search with weight sharing (Li and Talwalkar 2019)"),
    (
        "sliced-supernet",
        "supernets.sliced_config:SLICED_SUPERNET",
        "One supernet of which every network is a slice; searched under any constraint by evaluations (Chen 2021)",
    ),
    (
        "supernet-halving",
        "supernets.config:SUPERNET_HALVING",
        "Successive halving with weight sharing, over a supernet (Khodak 2020, Algorithm 1)",
    ),
    (
        "nesbs",
        "ensembles.config:NESBS",
        "NESBS: ensembles sampled from a posterior by mc or svgd-rd (Shu 2022, ch. 5)",
    ),
    (
        "urs",
        "ensembles.config:URS",
        "Ensembles drawn uniformly, and scored with shared weights as those of NESBS",
    ),
    (
        "single-best",
        "ensembles.config:SINGLE_BEST",
        "The single architecture that is best with shared weights, at as many evaluations as NESBS",
    ),
    (
        "deep-ensemble",
        "ensembles.config:DEEP_ENSEMBLE",
        "One architecture, trained n times (Lakshminarayanan 2017)",
    ),
    (
        "snapshot",
        "ensembles.config:SNAPSHOT",
        "One network, trained in n cycles of the learning rate (Huang 2017)",
    ),
    (
        "mc-droppath",
        "ensembles.config:MC_DROPPATH",
        "One network, n passes with dropped paths (after Gal and Ghahramani 2016)",
    ),
    (
        "nes-rs",
        "ensembles.config:NES_RS",
        "NES-RS: forward selection from a pool of random architectures, each trained (Zaidi 2021)",
    ),
    (
        "nes-re",
        "ensembles.config:NES_RE",
        "NES-RE: forward selection from a pool that regularised evolution grew (Zaidi 2021)",
    ),
    (
        "random-maps",
        "feature_maps.config:RANDOM_MAPS",
        "Random search over feature maps, a full solve each",
    ),
    (
        "halving",
        "feature_maps.config:HALVING",
        "Successive halving with weight sharing (Khodak 2020, Algorithm 1)",
    ),
    (
        "fast-halving",
        "feature_maps.config:FAST_HALVING",
        "Halving whose dimension grows by sqrt(2) a round (Khodak 2020, B.1)",
    ),
    (
        "successive-halving",
        "feature_maps.config:SUCCESSIVE_HALVING",
        "Ray Tune's asynchronous successive halving over feature maps, the dimension as resource",
    ),
    (
        "hyperband",
        "feature_maps.config:HYPERBAND",
        "Ray Tune's Hyperband over feature maps, the dimension as resource",
    ),
):
    METHODS.declare(_name, _summary, f"archray.platform.methods.{_place}")

for _name, _place, _summary in (
    (
        "activations",
        "activations.config:ACTIVATIONS",
        "What architecture parameters say of the activations that they weigh (Roberts et al. 2022)",
    ),
    (
        "split",
        "split.config:SPLIT",
        "When validation data are enough to choose an architecture by (Oymak et al. 2021)",
    ),
    (
        "topology",
        "topology.config:TOPOLOGY",
        "Cells by their connections: width and depth, convergence, landscape, generalisation (Shu 2022, ch. 4)",
    ),
):
    STUDIES.declare(_name, _summary, f"archray.platform.methods.understanding.{_place}")


def get_method(name: str) -> Method:
    """The method or the study called `name`. Raises: UnknownName, with the known methods."""
    return (STUDIES if name in STUDIES else METHODS).get(name)


def open_run(
    place: str | PathLike[str] | Folder, *, force: bool = False, trust: bool = False, uses: Uses = "code"
) -> Run[Any]:
    """The run in a folder, as `Run.open`. Raises: RunFolderError if it is none, or other versions made it."""
    return Run.open(place, lambda method: get_method(method).config, force=force, trust=trust, uses=uses)
