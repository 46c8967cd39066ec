"""The methods and studies by name, each with a summary and where it is. One is imported when it is chosen."""

from collections.abc import Mapping
from os import PathLike
from typing import Any

from archray.files import Folder
from archray.platform.methods.method import Method
from archray.platform.run.run import Run
from archray.platform.run.trust import Uses
from archray.registry import CatalogueRegistry

METHODS: CatalogueRegistry[Method] = CatalogueRegistry("method")  # of `archray search`
STUDIES: CatalogueRegistry[Method] = CatalogueRegistry("study")  # of `archray understand`


def _declare(module: str, summaries: Mapping[str, str], registry: CatalogueRegistry[Method] = METHODS) -> None:
    """Declares the methods of a module: `gaea-darts` is its `GAEA_DARTS`."""
    for name, summary in summaries.items():
        registry.declare(name, summary, f"archray.platform.methods.{module}:{name.upper().replace('-', '_')}")


_declare(
    "hnas.config",
    {"hnas": "Hybrid NAS: Bayesian optimisation over (mu, nu) of a training-free objective (Shu 2022, ch. 7)"},
)
_declare(
    "plain.config",
    {
        "random": "Random search, a short training of each architecture",
        "evolution": "Regularised (ageing) evolution (Real et al. 2019)",
        "local-search": "Local search: climbs from the best of a few (White 2021)",
        "reinforce": "REINFORCE: a policy that learns from the accuracy (Williams 1992)",
        "asha": "Ray Tune's asynchronous successive halving, epochs as resource (Li et al. 2020)",
        "bohb": "BOHB's model suggests, asynchronous successive halving ends trainings early (Falkner et al. 2018)",
        "zero-cost": "The best of a pool by one training-free metric, trained",
        "zero-cost-evolution": "Evolution that begins with the best of a pool by one metric (Abdelfattah et al. 2021)",
        "rank-surrogate": "A pool by several metrics at once, each weighed by the trainings: none of them can fool it",
        "robot": "RoBoT: learns weights of several metrics (He 2024)",
    },
)
_declare(
    "pareto.config",
    {
        "nsga2": "NSGA-II: accuracy against costs, a set in the end (Deb et al. 2002)",
        "pareto-pool": "A pool whose costs are known first: trains what adds most to the front, a set in the end",
    },
)
_declare(
    "supernets.config",
    {
        "darts": "DARTS, first order (Liu 2019)",
        "darts-2nd": "DARTS, second order (Liu 2019, Eq. 6-8)",
        "pc-darts": "PC-DARTS: DARTS on a quarter of the channels, with edge normalisation (Xu 2020)",
        "gdas": "GDAS: one drawn operation an edge, straight-through (Dong 2019)",
        "snas": "SNAS: mixtures drawn from a concrete distribution, single level (Xie 2019)",
        "gaea-darts": "GAEA DARTS: exponentiated gradient on the simplex (Li 2021)",
        "gaea-pc-darts": "GAEA PC-DARTS: exponentiated gradient with partial channels (Li 2021)",
        "gaea-gdas": "GAEA GDAS: exponentiated gradient of drawn operations (Li 2021)",
        "xnas": "XNAS: exponentiated gradient, clipped per image, with wipe-out (Nayman 2019)",
        "enas": "ENAS: a controller that learns by reward from the supernet's accuracy (Pham 2018)",
        "rs-ws": "Random search with weight sharing (Li and Talwalkar 2019)",
        "supernet-halving": "Successive halving with weight sharing, over a supernet (Khodak 2020, Algorithm 1)",
    },
)
_declare(
    "nasi.config",
    {"nasi": "NASI: search at initialisation by the neural tangent kernel, without labels or data (Shu 2022, ch. 6)"},
)
_declare(
    "supernets.sliced_config",
    {
        "sliced-supernet": (
            "One supernet of which every network is a slice; searched under any constraint by evaluations (Chen 2021)"
        )
    },
)
_declare(
    "ensembles.config",
    {
        "nesbs": "NESBS: ensembles sampled from a posterior by mc or svgd-rd (Shu 2022, ch. 5)",
        "urs": "Ensembles drawn uniformly, and scored with shared weights as those of NESBS",
        "single-best": "The single architecture that is best with shared weights, at as many evaluations as NESBS",
        "deep-ensemble": "One architecture, trained n times (Lakshminarayanan 2017)",
        "snapshot": "One network, trained in n cycles of the learning rate (Huang 2017)",
        "mc-droppath": "One network, n passes with dropped paths (after Gal and Ghahramani 2016)",
        "nes-rs": "NES-RS: forward selection from a pool of random architectures, each trained (Zaidi 2021)",
        "nes-re": "NES-RE: forward selection from a pool that regularised evolution grew (Zaidi 2021)",
    },
)
_declare(
    "feature_maps.config",
    {
        "random-maps": "Random search over feature maps, a full solve each",
        "halving": "Successive halving with weight sharing (Khodak 2020, Algorithm 1)",
        "fast-halving": "Halving whose dimension grows by sqrt(2) a round (Khodak 2020, B.1)",
        "successive-halving": "Ray Tune's asynchronous successive halving over feature maps, the dimension as resource",
        "hyperband": "Ray Tune's Hyperband over feature maps, the dimension as resource",
    },
)
_declare(
    "understanding.activations.config",
    {"activations": "What architecture parameters say of the activations that they weigh (Roberts et al. 2022)"},
    STUDIES,
)
_declare(
    "understanding.split.config",
    {"split": "When validation data are enough to choose an architecture by (Oymak et al. 2021)"},
    STUDIES,
)
_declare(
    "understanding.topology.config",
    {
        "topology": (
            "Cells by their connections: width and depth, convergence, landscape, generalisation (Shu 2022, ch. 4)"
        )
    },
    STUDIES,
)


def get_method(name: str) -> Method:
    """The method or the study called `name`. Raises: UnknownName, with the known methods."""
    return (STUDIES if name in STUDIES else METHODS).get(name)


def open_run(
    place: str | PathLike[str] | Folder, *, force: bool = False, trust: bool = False, uses: Uses = "code"
) -> Run[Any]:
    """The run in a folder, as `Run.open`. Raises: RunFolderError if it is none, or other versions made it."""
    return Run.open(place, lambda method: get_method(method).config, force=force, trust=trust, uses=uses)
