"""The methods and studies by name, with summaries. A method is imported when it is selected."""

from collections.abc import Mapping
from os import PathLike
from typing import Any

from archray.files import Folder
from archray.platform.methods.method import Method
from archray.platform.run.run import Run
from archray.platform.run.trust import Uses
from archray.registry import CatalogRegistry

METHODS: CatalogRegistry[Method] = CatalogRegistry("method")  # of `archray search`
STUDIES: CatalogRegistry[Method] = CatalogRegistry("study")  # of `archray understand`


def _declare(module: str, summaries: Mapping[str, str], registry: CatalogRegistry[Method] = METHODS) -> None:
    """Declares the methods of a module: `gaea-darts` is the attribute `GAEA_DARTS`."""
    for name, summary in summaries.items():
        registry.declare(name, summary, f"archray.platform.methods.{module}:{name.upper().replace('-', '_')}")


_declare(
    "hnas.config",
    {"hnas": "HNAS: Bayesian optimization of the (mu, nu) of a training-free objective (Shu 2022, ch. 7)"},
)
_declare(
    "plain.config",
    {
        "random": "Random search with a short training run of each architecture",
        "evolution": "Regularized (aging) evolution (Real et al. 2019)",
        "local-search": "Local search: hill climbing from the best of a few random architectures (White 2021)",
        "reinforce": "REINFORCE: a policy with the validation accuracy as reward (Williams 1992)",
        "asha": "Ray Tune's asynchronous successive halving, with epochs as resource (Li et al. 2020)",
        "bohb": "BOHB: a model suggests architectures, successive halving stops trials (Falkner et al. 2018)",
        "zero-cost": "Train the best architectures of a pool by one training-free metric",
        "zero-cost-evolution": "Evolution that starts from the best of a pool by one metric (Abdelfattah et al. 2021)",
        "rank-surrogate": "Start here for one network: several metrics, weighted by a surrogate of the training runs",
        "robot": "RoBoT: Bayesian optimization of the weights of several metrics (He 2024)",
    },
)
_declare(
    "pareto.config",
    {
        "nsga2": "NSGA-II: Pareto front of accuracy and costs (Deb et al. 2002)",
        "pareto-pool": "Pareto front from a pool with known costs, by expected hypervolume improvement",
    },
)
_declare(
    "supernets.config",
    {
        "darts": "DARTS, first order (Liu 2019)",
        "darts-2nd": "DARTS, second order (Liu 2019, Eq. 6-8)",
        "pc-darts": "PC-DARTS: DARTS on a quarter of the channels, with edge normalization (Xu 2020)",
        "gdas": "GDAS: one sampled operation per edge, straight-through gradients (Dong 2019)",
        "snas": "SNAS: mixtures sampled from a concrete distribution, single-level optimization (Xie 2019)",
        "gaea-darts": "GAEA DARTS: exponentiated gradient on the simplex (Li 2021)",
        "gaea-pc-darts": "GAEA PC-DARTS: exponentiated gradient with partial channels (Li 2021)",
        "gaea-gdas": "GAEA GDAS: exponentiated gradient with sampled operations (Li 2021)",
        "xnas": "XNAS: exponentiated gradient with per-image clipping and wipe-out of operations (Nayman 2019)",
        "enas": "ENAS: a controller trained with the supernet's accuracy as reward (Pham 2018)",
        "rs-ws": "Random search with weight sharing (Li and Talwalkar 2019)",
        "supernet-halving": "Successive halving with weight sharing in a supernet (Khodak 2020, Algorithm 1)",
    },
)
_declare(
    "nasi.config",
    {"nasi": "NASI: search at initialization by the neural tangent kernel, without training (Shu 2022, ch. 6)"},
)
_declare(
    "supernets.sliced_config",
    {
        "sliced-supernet": (
            "One supernet whose slices are the networks, searched by evaluations under constraints (Chen 2021)"
        )
    },
)
_declare(
    "ensembles.config",
    {
        "nesbs": "NESBS: ensembles sampled from a posterior over architectures, by MC or SVGD-RD (Shu 2022, ch. 5)",
        "urs": "Ensembles sampled uniformly and scored with shared weights, as in NESBS",
        "single-best": "The single best architecture by shared weights, with as many evaluations as NESBS",
        "deep-ensemble": "Deep ensemble: one architecture, trained n times (Lakshminarayanan 2017)",
        "snapshot": "Snapshot ensemble: one network, trained in n cycles of the learning rate (Huang 2017)",
        "mc-droppath": "One network, n forward passes with dropped paths (after Gal and Ghahramani 2016)",
        "nes-rs": "NES-RS: forward selection from a pool of trained random architectures (Zaidi 2021)",
        "nes-re": "NES-RE: forward selection from a pool grown by regularized evolution (Zaidi 2021)",
    },
)
_declare(
    "feature_maps.config",
    {
        "random-maps": "Random search over feature maps, with a full solve of each",
        "halving": "Successive halving over feature maps, with weight sharing (Khodak 2020, Algorithm 1)",
        "fast-halving": "Halving over feature maps with a growing dimension (Khodak 2020, B.1)",
        "successive-halving": "Ray Tune's asynchronous successive halving over feature maps, by feature dimension",
        "hyperband": "Ray Tune's Hyperband over feature maps, by feature dimension",
    },
)
_declare(
    "understanding.activations.config",
    {"activations": "Whether architecture parameters identify the best activations (Roberts et al. 2022)"},
    STUDIES,
)
_declare(
    "understanding.split.config",
    {"split": "How much validation data the choice of an architecture needs (Oymak et al. 2021)"},
    STUDIES,
)
_declare(
    "understanding.topology.config",
    {
        "topology": (
            "How the connections of cells affect convergence, loss landscape and generalization (Shu 2022, ch. 4)"
        )
    },
    STUDIES,
)


def get_method(name: str) -> Method:
    """The method or the study called `name`. Raises: UnknownName, which lists the known methods."""
    return (STUDIES if name in STUDIES else METHODS).get(name)


def open_run(place: str | PathLike[str] | Folder, *, trust: bool = False, uses: Uses = "code") -> Run[Any]:
    """Opens the run in a folder; see `Run.open`. Raises: RunFolderError if the folder is not a run that it can read."""
    return Run.open(place, lambda method: get_method(method).config, trust=trust, uses=uses)
