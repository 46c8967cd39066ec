"""The convolutions of archray's networks, with their gradients, against float64. Finds wrong kernels of the CPU.

The scan records kernels, strides, paddings, dilations and groups while every registered network and supernet makes a
training step on 16 x 16 images, and while every metric scores it (second derivatives convolve with whole maps). Each
kind runs with 1 to 16 channels in and out (depthwise: 1 to 64, because fused edges share a convolution), in both
layouts, four times with random numbers. The script checks the output and the gradients of input and weight. With as
many output as input channels it also checks two more input shapes. A deviation is relative to the same operation on
absolute values; above 1e-4 the result is wrong. The scan also runs parts that networks never compute (both gradients
of a kernel as large as the map), and marks them.

A kind of convolution and a layout share a process, in which glibc checks the heap. If the process dies or hangs, the
current case has failed, and a new process runs the remaining cases. Each failed case then runs again in a separate
process, and the script prints this result. One further kind is wrong with AVX2, and no network uses it: the 1 x 1
convolution of stride 2 (oneDNN issue 6035). It shows that the scan detects a wrong kernel.

    python benchmarks/convolutions.py
    python benchmarks/convolutions.py --isa default AVX2 AVX512_CORE --processes 2

The exit status is 1 if a case failed that networks compute.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

TOLERANCE = 1e-4
ROUNDS = 4  # a kernel that writes beyond its memory is often right by luck
LAYOUTS = {"default": torch.contiguous_format, "channels-last": torch.channels_last}
SHAPES = ((16, 8, 8), (3, 7, 7), (1, 16, 16))  # n, H, W; a kernel larger than the padded map is left out
CHANNELS, DEPTHWISE_CHANNELS = range(1, 17), range(1, 65)
GROUPS = 4  # groups of a grouped convolution, such as per-sample gradients
PARTS = ("output", "input gradient", "weight gradient")
START_SECONDS, CASE_SECONDS = 120, 2.0  # limits on a busy machine; a slower process hangs


class Kind(NamedTuple):
    """A convolution without its channels. groups: `one`, `depthwise` or `several`."""

    kernel: tuple[int, int]
    stride: int
    padding: tuple[int, int]
    dilation: int
    groups: str

    def __str__(self) -> str:
        kernel, padding = ("x".join(map(str, pair)) for pair in (self.kernel, self.padding))
        return f"{kernel}, stride {self.stride}, padding {padding}, dilation {self.dilation}, groups {self.groups}"


CONTROL = Kind((1, 1), 2, (0, 0), 1, "one")


class Case(NamedTuple):
    """One convolution to run. in_channels, out_channels: channels per group."""

    kind: Kind
    layout: str
    shape: tuple[int, int, int]
    in_channels: int
    out_channels: int

    def __str__(self) -> str:
        n, height, width = self.shape
        return (
            f"{self.kind}, {self.layout} layout, {self.in_channels} -> {self.out_channels} of {n} x {height} x {width}"
        )


# Kinds in the networks


class Recorder(TorchDispatchMode):
    """Records the kind of every convolution, and its computed PARTS, in forward and backward passes."""

    def __init__(self) -> None:
        super().__init__()
        self.parts: dict[Kind, set[str]] = defaultdict(set)

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is torch.ops.aten.convolution.default:
            self._note([True, False, False], args[0], args[1], *args[3:6], args[8])
        elif function is torch.ops.aten.convolution_backward.default:
            self._note([False, *args[10][:2]], args[1], args[2], *args[4:7], args[9])
        return function(*args, **(kwargs or {}))

    def _note(
        self, computed: Sequence[bool], x: Tensor, weight: Tensor, stride: Any, padding: Any, dilation: Any, groups: int
    ) -> None:
        if len(set(stride)) > 1 or len(set(dilation)) > 1:
            raise NotImplementedError(f"stride {stride} and dilation {dilation} of a network are not scanned")
        name = "one" if groups == 1 else "depthwise" if groups == x.shape[1] == len(weight) else "several"
        kind = Kind(tuple(weight.shape[2:]), stride[0], tuple(padding), dilation[0], name)
        self.parts[kind].update(itertools.compress(PARTS, computed))


def kinds_of_networks() -> Mapping[Kind, set[str]]:
    """Returns the kinds of convolution, with their parts, in training and scoring of all networks and supernets."""
    # Imported here, because the processes that run cases need none of them.
    from archray.trainables.nets import NetworkSettings, build
    from archray.trainables.nets.build_network import NETWORKS
    from archray.trainables.proxies import PROXIES, ProxySettings, score
    from archray.trainables.spaces import get_space
    from archray.trainables.supernets.networks import SUPERNETS, build_supernet, groups

    images, labels = torch.randn(4, 3, 16, 16), torch.arange(4)
    metrics = tuple(PROXIES.names())
    recorder = Recorder()
    with recorder:
        for name in NETWORKS:
            space = get_space(name)
            for choice in sorted({choice for decision in space.decisions for choice in decision.choices}):
                architecture = tuple(choice if choice in d.choices else d.choices[-1] for d in space.decisions)
                network = NetworkSettings(channels=4, cells=1)
                options: dict[str, Any] = {"in_channels": 3, "num_classes": 4, "seed": 0}
                step(build(space, architecture, network=network, **options)(images))
                score(
                    build(space, architecture, network=network, for_scoring=True, **options),
                    images, labels, metrics, ProxySettings(metrics=metrics),
                )  # fmt: skip
                if name.startswith("darts"):
                    large = network.model_copy(update={"stem": "imagenet", "auxiliary": True})
                    step(build(space, architecture, network=large, **options)(images))
        # Fused edges do different things with few and many channels.
        for name, partial, channels in itertools.product(SUPERNETS, (1, 2), (4, 16)):
            network = NetworkSettings(channels=channels, cells=1)
            supernet = build_supernet(name, network, 3, 4, seed=0, partial_channels=partial)
            weights = {group.name: torch.full(group.shape, 0.1) for group in groups(name, partial_channels=partial)}
            step(supernet(images, weights))
    return recorder.parts


def step(logits: Tensor | tuple[Tensor, ...]) -> None:
    """Makes a backward pass from the logits, including those of an auxiliary tower."""
    sum(output.sum() for output in (logits if isinstance(logits, tuple) else (logits,))).backward()


# Runs of cases, in a separate process


def try_cases() -> None:
    """Reads cases from the standard input, and prints the start and the deviations of each."""
    for number, (kind, *rest) in enumerate(json.load(sys.stdin)):
        print(number, flush=True)
        print(json.dumps(deviations(Case(Kind(*kind), *rest), number)), flush=True)


def deviations(case: Case, seed: int) -> list[float]:
    """Returns the largest relative deviation over the rounds for each of PARTS; infinity for NaN."""
    kind, (n, height, width) = case.kind, case.shape
    groups = {"one": 1, "depthwise": case.in_channels, "several": GROUPS}[kind.groups]
    per_group = 1 if kind.groups == "depthwise" else case.in_channels
    outs = case.out_channels * (GROUPS if kind.groups == "several" else 1)
    generator = torch.Generator().manual_seed(seed)
    largest = [0.0] * len(PARTS)
    scales: tuple[Tensor, ...] = ()  # from the first round; all rounds have the same scales

    def random(*size: int) -> Tensor:
        return torch.randn(size, generator=generator).contiguous(memory_format=LAYOUTS[case.layout])

    def parts(x: Tensor, weight: Tensor, along: Tensor | None) -> tuple[Tensor, ...]:
        x, weight = x.requires_grad_(), weight.requires_grad_()
        y = functional.conv2d(x, weight, None, kind.stride, kind.padding, kind.dilation, groups)
        along = random(*y.shape) if along is None else along
        return y.detach(), *torch.autograd.grad(y, (x, weight), along), along

    for _ in range(ROUNDS):
        x, weight = random(n, per_group * groups, height, width), random(outs, per_group, *kind.kernel)
        *ours, along = parts(x, weight, None)
        exact_inputs = [tensor.detach().double() for tensor in (x, weight, along)]
        exact = parts(*exact_inputs)
        scales = scales or parts(*(tensor.detach().abs() for tensor in exact_inputs))
        for part, (single, right, scale) in enumerate(zip(ours, exact, scales, strict=False)):
            deviation = float((single - right).abs().max() / scale.max())
            largest[part] = max(largest[part], deviation if deviation == deviation else float("inf"))
    return largest


# Monitoring of the processes


def outcomes(cases: Sequence[Case], isa: str) -> list[list[float] | str]:
    """Returns the deviations of each case, or the end of its process."""
    answers: list[list[float] | str] = []
    while len(answers) < len(cases):
        answers += outcomes_of_process(cases[len(answers) :], isa)
    return answers


def outcomes_of_process(cases: Sequence[Case], isa: str) -> list[list[float] | str]:
    """Returns the outcomes of the cases that one process reaches; the last may have ended the process."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MALLOC_CHECK_": "3", "LD_PRELOAD": "libc_malloc_debug.so.0"}
    environment |= {} if isa == "default" else {"ONEDNN_MAX_CPU_ISA": isa}
    process = subprocess.Popen(
        [sys.executable, __file__, "--try"],
        env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        out, complaint = process.communicate(json.dumps(cases), START_SECONDS + CASE_SECONDS * len(cases))
        ended = f"died ({signal.Signals(-process.returncode).name})" if process.returncode < 0 else ""
    except subprocess.TimeoutExpired:
        process.kill()
        out, complaint = process.communicate()
        ended = "hung"
    lines = out.splitlines()
    answers: list[list[float] | str] = [json.loads(line) for line in lines[1::2]]
    if len(answers) == len(cases):
        return answers  # a process that dies while it frees the heap at its end blames no case
    if not ended or not lines:
        raise RuntimeError(f"a process that runs convolutions ended early: {ended} {complaint}")
    return [*answers, ended]


def failed(answer: list[float] | str) -> bool:
    return isinstance(answer, str) or max(answer) > TOLERANCE


def concerns(answer: list[float] | str, parts: Container[str]) -> bool:
    """Returns whether a failed part is one that networks compute; a process that died may have failed in any."""
    if isinstance(answer, str):
        return bool(parts)
    return any(value > TOLERANCE and part in parts for part, value in zip(PARTS, answer, strict=True))


def describe(answer: list[float] | str) -> str:
    if isinstance(answer, str):
        return answer
    return ", ".join(f"{part} {value:.0e}" for part, value in zip(PARTS, answer, strict=True) if value > TOLERANCE)


def cases_of(kind: Kind, layout: str) -> Iterator[Case]:
    for n, height, width in SHAPES:
        maps = zip((height, width), kind.kernel, kind.padding, strict=True)
        if any(size + 2 * padding < kind.dilation * (kernel - 1) + 1 for size, kernel, padding in maps):
            continue
        channels: Iterable[tuple[int, int]] = zip(CHANNELS, CHANNELS, strict=True)
        if kind.groups == "depthwise":
            channels = zip(DEPTHWISE_CHANNELS, DEPTHWISE_CHANNELS, strict=True)
        elif kind != CONTROL and (n, height, width) == SHAPES[0]:
            channels = itertools.product(CHANNELS, CHANNELS)
        yield from (Case(kind, layout, (n, height, width), *pair) for pair in channels)


def scan(kind: Kind, layout: str, isa: str) -> tuple[int, float, Mapping[Case, list[float] | str]]:
    """Returns the number of cases, the largest deviation of the correct cases, and the failed cases."""
    cases = list(cases_of(kind, layout))
    answers = dict(zip(cases, outcomes(cases, isa), strict=True))
    again = {case: outcomes([case], isa)[0] for case, answer in answers.items() if failed(answer)}
    right = [max(answer) for case, answer in answers.items() if case not in again and not isinstance(answer, str)]
    return len(cases), max(right, default=0.0), again


def main() -> int:
    """Runs the command line. Returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--isa", nargs="+", default=["default", "AVX2"], help="values of ONEDNN_MAX_CPU_ISA")
    parser.add_argument("--processes", type=int, default=2, help="concurrent processes")
    parser.add_argument("--try", action="store_true", dest="try_", help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(1)  # with several threads, a wrong kernel may hang
    if options.try_:
        try_cases()
        return 0
    parts = kinds_of_networks()
    print(f"torch {torch.__version__}, {len(parts)} kinds in the networks", flush=True)
    wrong = False
    jobs = list(itertools.product(options.isa, dict.fromkeys([*sorted(parts), CONTROL]), LAYOUTS))
    with ThreadPoolExecutor(options.processes) as pool:
        scans = pool.map(lambda job: scan(job[1], job[2], job[0]), jobs)
        for (isa, kind, layout), (count, largest, failures) in zip(jobs, scans, strict=True):
            computed = parts.get(kind, set())
            print(f"{isa} | {kind} | {layout} | {count} cases | {len(failures)} failed | {largest:.0e}", flush=True)
            for case, answer in failures.items():
                alone = describe(answer) if failed(answer) else "right in a separate process"
                ours = concerns(answer, computed) if failed(answer) else bool(computed)
                print(f"    {case}: {alone}{'' if ours else ' (no network computes it)'}")
                wrong |= ours
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
