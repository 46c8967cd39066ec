"""Speed on a GPU, in one command of less than 20 minutes.

Measures the GPU's rates of copying and of matrix products, and then, compared with a plain PyTorch version in the same
run: training-free metrics (in one process, and in four Ray actors that share the GPU), steps of the DARTS and PC-DARTS
supernets, training, ridge regression, and predictions of an ensemble. Each row has the share of the GPU's rates that it
reaches: FLOPs are counted by torch, bytes as the inputs and outputs of every operation. Compilation takes minutes, so
it needs `--compile`. Run the tests first: they compare the trainables with the CPU.

    python -m pytest tests/trainables/test_cuda.py tests/platform/test_gpu_sharing.py
    python benchmarks/gpu.py --compile --out gpu.csv
    python benchmarks/gpu.py --device cpu --small       # the same code without a GPU; the numbers mean nothing
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import csv
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial as partial_of
from typing import Any

import numpy as np
import ray
import torch
from proxy_baselines import plain
from supernet_step import Original, mixture
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry
from torchvision.transforms import v2

from archray.trainables.cuda_graphs import GraphedPasses
from archray.trainables.data import Dataset, Split
from archray.trainables.devices import free_memory
from archray.trainables.ensembles.prediction import predict
from archray.trainables.feature_maps.features import DenseFeatures
from archray.trainables.feature_maps.ridge import TorchGram, solve_ridge
from archray.trainables.nets import NetworkSettings, build
from archray.trainables.proxies import ProxySettings, score
from archray.trainables.spaces import get_space
from archray.trainables.supernets.networks import build_supernet
from archray.trainables.training import Trainer
from archray.trainables.training_settings import TrainingSettings
from archray.trainables.tune.scorers import PoolScorer

METRICS = ("grad_norm", "snip", "grasp", "ntk_trace", "kappa")
ACTORS = 4
DISTINCT = 5044  # canonical forms of NAS-Bench-201
GIB = 2**30


class Counter(TorchDispatchMode):
    """Counts FLOPs, and the bytes of the inputs and outputs of every operation except views."""

    flops = bytes = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = function(*args, **(kwargs or {}))
        if function.overloadpacket in flop_registry:
            self.flops += flop_registry[function.overloadpacket](*args, **(kwargs or {}), out_val=out)
        if not getattr(function, "is_view", False):
            for value in torch.utils._pytree.tree_leaves((args, kwargs, out)):
                if isinstance(value, Tensor):
                    self.bytes += value.numel() * value.element_size()
        return out


class Bench:
    """Runs works, and collects a row for each: its rate, its share of the GPU's rates, and its peak of memory."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options, self.device = options, torch.device(options.device)
        self.rows: list[dict[str, Any]] = []
        self.rates: dict[str, float] = {}

    def wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def seconds(self, work: Callable[[], object], *, repeats: int | None = None) -> float:
        """Returns the median seconds of a work after a warm-up."""
        work()
        taken = []
        for _ in range(repeats or self.options.repeats):
            self.wait()
            start = time.perf_counter()
            work()
            self.wait()
            taken.append(time.perf_counter() - start)
        return statistics.median(taken)

    def row(self, part: str, case: str, value: float, unit: str, **more: Any) -> None:
        shown = {"part": part, "case": case, "value": f"{value:.4g}", "unit": unit, **more}
        self.rows.append(shown)
        print(" | ".join(f"{v}" for v in shown.values()), flush=True)

    def measure(
        self,
        part: str,
        case: str,
        work: Callable[[], object],
        items: float,
        unit: str,
        *,
        precision: str = "tf32",
        repeats: int | None = None,
        counted: Callable[[], object] | None = None,
        share: float = 1.0,
    ) -> float:
        """Measures items per second.

        Args:
            counted: Work whose FLOPs and bytes are counted; it is `share` of the measured one.
        """
        free_memory()
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()
        try:
            seconds = self.seconds(work, repeats=repeats)
        except Exception as error:  # one failed work must not lose the others
            self.row(part, case, float("nan"), unit, failure=f"{type(error).__name__}: {str(error)[:200]}")
            return float("nan")
        more: dict[str, Any] = {}
        if self.device.type == "cuda":
            more["peak_gib"] = f"{torch.cuda.max_memory_allocated() / GIB:.2f}"
        if counted is not None and self.rates:
            with Counter() as counter:
                counted()
            more["flops_share"] = f"{counter.flops / share / seconds / self.rates[precision]:.3f}"
            more["bytes_share"] = f"{counter.bytes / share / seconds / self.rates['copy']:.3f}"
        self.row(part, case, items / seconds, unit, **more)
        return items / seconds


def card(bench: Bench) -> None:
    """Measures the rates of the GPU: bytes copied (read and written), and FLOPs of matrix products."""
    size = 256 if bench.options.small else 8192
    source = torch.randn(size * size // 4, device=bench.device)
    target = torch.empty_like(source)
    bench.rates["copy"] = 2 * source.numel() * 4 / bench.seconds(lambda: target.copy_(source))
    for name, dtype, tf32 in (("float32", torch.float32, False), ("tf32", torch.float32, True)):
        torch.backends.cuda.matmul.allow_tf32 = tf32
        square = torch.randn(size, size, device=bench.device, dtype=dtype)
        bench.rates[name] = 2 * size**3 / bench.seconds(lambda square=square: square @ square)
    torch.backends.cuda.matmul.allow_tf32 = False
    square = torch.randn(size, size, device=bench.device, dtype=torch.bfloat16)
    bench.rates["bf16"] = 2 * size**3 / bench.seconds(lambda: square @ square)
    for name, rate in bench.rates.items():
        bench.row("card", name, rate / 1e12, "TB/s" if name == "copy" else "TFLOP/s")


def scoring(bench: Bench) -> None:
    """Measures training-free metrics at (C, N) = (16, 5), batch 64: shared passes, plain passes, four actors."""
    small = bench.options.small
    network = NetworkSettings(channels=4 if small else 16, cells=1 if small else 5)
    space, rng = get_space("nasbench201"), np.random.default_rng(0)
    images = torch.randn(8 if small else 64, 3, 32, 32, device=bench.device)
    labels = torch.randint(10, (len(images),), device=bench.device)
    options: Any = {"network": network, "in_channels": 3, "num_classes": 10, "seed": 0, "for_scoring": True}
    cells = [space.sample(rng) for _ in range(2 if small else 8)]
    networks = [build(space, cell, **options).to(bench.device) for cell in cells]

    def each(way: Callable[..., object], *more: Any) -> None:
        for one in networks:
            way(one, images, labels, *more)

    # Each metric would repeat the passes that it needs; the Jacobians of the plain way allow one repeat only.
    rate = bench.measure(
        "scoring", "shared passes, one process", lambda: each(score, METRICS, ProxySettings()), len(networks), "1/s",
        precision="float32",
    )  # fmt: skip
    with contextlib.suppress(torch.linalg.LinAlgError):
        bench.measure(
            "scoring",
            "plain passes, one process",
            lambda: each(plain),
            len(networks),
            "1/s",
            repeats=1,
        )
    bench.row("scoring", "whole NAS-Bench-201, one process", DISTINCT / rate / 60, "min")
    gpus = 1 / ACTORS if bench.device.type == "cuda" else 0
    proxy = {"metrics": list(METRICS), "batch_size": len(images), "network": network.model_dump()}
    scorer = ray.remote(num_gpus=gpus, num_cpus=1)(PoolScorer)
    arguments: Any = ("nasbench201", {"name": "gaussian", "limit": 128}, proxy)
    actors = [scorer.remote(*arguments, device=bench.options.device) for _ in range(1 if small else ACTORS)]
    names = [space.encode(space.sample(rng)) for _ in range(len(actors) * (1 if small else 24))]
    ray.get([actor.__call__.remote(name) for actor in actors for name in names[:2]])
    start = time.perf_counter()
    ray.get([actors[i % len(actors)].__call__.remote(name) for i, name in enumerate(names)])
    rate = len(names) / (time.perf_counter() - start)
    bench.row("scoring", f"{len(actors)} actors", rate, "1/s")
    bench.row("scoring", f"whole NAS-Bench-201, {len(actors)} actors", DISTINCT / rate / 60, "min")
    for actor in actors:
        ray.kill(actor)


def supernets(bench: Bench) -> None:
    """Measures the gradients of a step of DARTS and PC-DARTS: by the architecture, and by the weights."""
    supernet_steps(bench, "DARTS", 1, 4 if bench.options.small else 64)
    supernet_steps(bench, "PC-DARTS", 4, 4 if bench.options.small else 96)


def supernet_steps(bench: Bench, name: str, partial: int, batch: int) -> None:
    small, device = bench.options.small, bench.device
    network = NetworkSettings(channels=4 if small else 16, cells=1 if small else 2)
    supernet = build_supernet("darts", network, 3, 10, seed=0, partial_channels=partial)
    original = Original(supernet).to(device)
    supernet = supernet.to(device)
    contiguous = torch.randn(batch, 3, 32, 32, device=device)
    images, labels = contiguous.to(memory_format=torch.channels_last), torch.randint(10, (batch,), device=device)
    rows = mixture(supernet, torch.float32).items()
    weights = {group: row.detach().to(device).requires_grad_() for group, row in rows}
    fixed = {group: row.detach() for group, row in weights.items()}

    def train(module: Callable[..., Tensor], x: Tensor, amp: bool) -> None:
        with torch.autocast(device.type, torch.bfloat16, enabled=amp):
            loss = F.cross_entropy(module(x, weights), labels)
        torch.autograd.grad(loss, list(weights.values()))
        with torch.autocast(device.type, torch.bfloat16, enabled=amp):
            loss = F.cross_entropy(module(x, fixed), labels)
        loss.backward()

    case = f"{name}, batch {batch}"
    for amp, precision, words in ((False, "tf32", ""), (True, "bf16", ", bf16"))[: 1 if device.type == "cpu" else 2]:
        for way, module, x in ((", plain modules", original, contiguous), ("", supernet, images)):
            work = partial_of(train, module, x, amp)
            bench.measure("supernet", case + way + words, work, batch, "images/s", precision=precision, counted=work)
        if device.type == "cuda":
            graphed, words = partial_of(train, GraphedPasses(supernet, amp=amp), images, amp), words + ", CUDA graphs"
            bench.measure("supernet", case + words, graphed, batch, "images/s", precision=precision, counted=work)
    if bench.options.compile:
        start, work = time.perf_counter(), partial_of(train, torch.compile(supernet), images, True)
        bench.measure("supernet", f"{case}, bf16, compiled", work, batch, "images/s")
        bench.row("supernet", f"{case}, compilation", time.perf_counter() - start, "s")


def random_data(bench: Bench, images: int) -> Dataset:
    generator = torch.Generator().manual_seed(0)

    def split(count: int) -> Split:
        labels = torch.randint(10, (count,), generator=generator)
        return Split(torch.randn(count, 3, 32, 32, generator=generator), labels).to(bench.device)

    return Dataset("random", split(images), split(64), split(64), num_classes=10, in_channels=3, image_size=32)


def training(bench: Bench) -> None:
    """Measures images per second of an epoch: NAS-Bench-201 (16, 5) at batch 256, and DARTS' evaluation network."""
    small = bench.options.small
    space, rng = get_space("darts"), np.random.default_rng(0)
    cell = "|nor_conv_3x3~0|+|nor_conv_3x3~0|nor_conv_3x3~1|+|skip_connect~0|nor_conv_3x3~1|nor_conv_3x3~2|"
    works: list[tuple[str, str, str, NetworkSettings, dict[str, Any], int]] = [
        ("NAS-Bench-201 (16, 5)", "nasbench201", cell, NetworkSettings(channels=16, cells=5),
         {"batch_size": 256}, 25_600),
        ("DARTS (36, 20 cells)", "darts", space.encode(space.sample(rng)),
         NetworkSettings(channels=36, cells=6, auxiliary=True),
         {"batch_size": 96, "auxiliary_weight": 0.4, "drop_path": 0.2, "augmentation": {"cutout": 16}}, 1_920),
    ]  # fmt: skip
    for name, of, architecture, network, more, count in works:
        if small:
            network, count = network.model_copy(update={"channels": 4, "cells": 1}), 64
            more = more | {"batch_size": 32}
        data = random_data(bench, count)
        ways: dict[str, dict[str, Any]] = {
            "float32": {"tf32": False}, "TF32": {}, "bf16": {"amp": True},
            "bf16, channels last": {"amp": True, "channels_last": True},
        }  # fmt: skip
        if bench.device.type == "cpu":  # where bfloat16 is slow
            ways = {way: values for way, values in ways.items() if "amp" not in values}
        elif not more.get("drop_path"):
            ways |= {
                "TF32, CUDA graphs": {"cuda_graphs": True}, "bf16, CUDA graphs": {"amp": True, "cuda_graphs": True},
                "bf16, channels last, CUDA graphs": {"amp": True, "channels_last": True, "cuda_graphs": True},
            }  # fmt: skip
        if bench.options.compile:
            ways["bf16, compiled"] = {"amp": True, "compile": True}
        for way, values in ways.items():
            module = build(of, architecture, network=network, in_channels=3, num_classes=10, seed=0)
            settings = TrainingSettings(epochs=100, **{**more, **values})
            trainer = Trainer(module, data, settings, seed=0)
            precision = "bf16" if settings.amp else "tf32" if settings.tf32 else "float32"
            eager = settings.model_copy(update={"compile": False, "cuda_graphs": False})
            one_batch = Trainer(copy.deepcopy(module), random_data(bench, eager.batch_size), eager, seed=0)
            bench.measure(
                "training", f"{name}, {way}", trainer.epoch, count, "images/s", precision=precision, repeats=1,
                counted=one_batch.epoch, share=eager.batch_size / count,
            )  # fmt: skip
        if of == "nasbench201":
            for way, amp in (("float32", False), ("bf16", True))[: 1 if bench.device.type == "cpu" else 2]:
                module = build(of, architecture, network=network, in_channels=3, num_classes=10, seed=0)
                bench.measure(
                    "training", f"{name}, plain loop with DataLoader, {way}",
                    plain_epoch(bench, module.to(bench.device), count, more["batch_size"], amp), count, "images/s",
                    repeats=1,
                )  # fmt: skip


def plain_epoch(bench: Bench, network: nn.Module, count: int, batch: int, amp: bool) -> Callable[[], None]:
    """Returns an epoch as users write it: torchvision's transforms in the processes of a DataLoader."""
    pixels = torch.randint(256, (count, 3, 32, 32), dtype=torch.uint8)
    transform = v2.Compose(
        [v2.RandomCrop(32, padding=4), v2.RandomHorizontalFlip(), v2.ToDtype(torch.float32, scale=True),
         v2.Normalize((0.49, 0.48, 0.45), (0.25, 0.24, 0.26))]
    )  # fmt: skip

    class Images(torch.utils.data.Dataset):  # type: ignore[type-arg]
        def __len__(self) -> int:
            return count

        def __getitem__(self, index: int) -> tuple[Tensor, int]:
            return transform(pixels[index]), index % 10

    workers = 0 if bench.options.small else 15
    loader = torch.utils.data.DataLoader(
        Images(), batch, shuffle=True, num_workers=workers, pin_memory=workers > 0, persistent_workers=workers > 0
    )
    optimizer = torch.optim.SGD(network.parameters(), 0.1, momentum=0.9, nesterov=True, weight_decay=5e-4)

    def epoch() -> None:
        network.train()
        for images, labels in loader:
            images, labels = images.to(bench.device, non_blocking=True), labels.to(bench.device, non_blocking=True)
            with torch.autocast(bench.device.type, torch.bfloat16, enabled=amp):
                loss = F.cross_entropy(network(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    return epoch


def ridge(bench: Bench) -> None:
    """Measures ridge regression with n = 50,000, d = 20,000 and 10 classes, against the Gram matrix's product alone."""
    n, d = (500, 200) if bench.options.small else (50_000, 20_000)
    generator = torch.Generator(bench.device).manual_seed(0)
    matrix = torch.randn(n, d, generator=generator, device=bench.device)
    targets = torch.randn(n, 10, generator=generator, device=bench.device, dtype=torch.float64)
    flops = 2 * n * d**2

    held = TorchGram(d, torch.float32, bench.device)

    def product() -> None:
        torch.zeros(d, d, device=bench.device).addmm_(matrix.T, matrix)

    def gram() -> None:
        for block in matrix.split(2**15):
            held.add(block)

    for case, work in (("one product of cuBLAS", product), ("Gram matrix by blocks", gram)):
        bench.measure("ridge", case, work, flops / 1e12, "TFLOP/s", precision="float32", repeats=2)
    for precision in ("float32", "float64"):
        rate = bench.measure(
            "ridge", f"whole solve, gram={precision}",
            lambda precision=precision: solve_ridge(
                DenseFeatures(matrix), targets, 1.0, gram=precision, memory_gib=40.0  # type: ignore[arg-type]
            ), 1, "1/s", precision="float32", repeats=1,
        )  # fmt: skip
        bench.row("ridge", f"whole solve, gram={precision}", 1 / rate, "s")


def ensembles(bench: Bench) -> None:
    """Measures the predictions of 100 members on 10,000 images."""
    members, images = (2, 64) if bench.options.small else (100, 10_000)
    network = NetworkSettings(channels=4 if bench.options.small else 16, cells=1 if bench.options.small else 5)
    space, rng = get_space("nasbench201"), np.random.default_rng(0)
    networks = [
        build(space, space.sample(rng), network=network, in_channels=3, num_classes=10, seed=i).to(bench.device).eval()
        for i in range(members)
    ]
    data = random_data(bench, images).train
    for amp in (False, True)[: 1 if bench.device.type == "cpu" else 2]:
        bench.measure(
            "ensembles", f"{members} members, {images} images, {'bf16' if amp else 'TF32'}",
            lambda amp=amp: [predict(one, data, amp=amp) for one in networks], members * images, "predictions/s",
            repeats=1, precision="bf16" if amp else "tf32", share=2 / members,
            counted=lambda amp=amp: [predict(one, data, amp=amp) for one in networks[:2]],
        )  # fmt: skip


PARTS: dict[str, Callable[[Bench], None]] = {
    "card": card, "scoring": scoring, "supernets": supernets, "training": training, "ridge": ridge,
    "ensembles": ensembles,
}  # fmt: skip


@contextlib.contextmanager
def local_ray(options: argparse.Namespace) -> Iterator[None]:
    ray.init("local", include_dashboard=False, log_to_driver=False, num_cpus=ACTORS + 1)
    try:
        yield
    finally:
        ray.shutdown()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--small", action="store_true", help="toy sizes, to try the program")
    parser.add_argument("--compile", action="store_true", help="measure torch.compile too")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", help="CSV file of the results")
    options = parser.parse_args()
    bench = Bench(options)
    bench.row("machine", f"torch {torch.__version__}, CUDA {torch.version.cuda}", torch.get_num_threads(), "threads")
    if bench.device.type == "cuda":
        memory = torch.cuda.get_device_properties(0).total_memory / GIB
        bench.row("machine", torch.cuda.get_device_name(0), memory, "GiB")
    with local_ray(options) if "scoring" in options.parts else contextlib.nullcontext():
        for part in options.parts:
            PARTS[part](bench)
            free_memory()
            if options.out:  # after each part, so that an interruption loses one part only
                columns = ["part", "case", "value", "unit", "peak_gib", "flops_share", "bytes_share", "failure"]
                with open(options.out, "w", newline="") as file:
                    writer = csv.DictWriter(file, columns)
                    writer.writeheader()
                    writer.writerows(bench.rows)
    return int(any("failure" in row for row in bench.rows))


if __name__ == "__main__":
    sys.exit(main())
