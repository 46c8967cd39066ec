"""Latency and peak memory of a network: timed passes by torch.export or ONNX Runtime, and the operation graph."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from archray.errors import InvalidInput, MissingExtra, install_command
from archray.trainables.costs.settings import LatencySettings

MILLISECONDS = 1e3
NO_RUNTIME = f"needs onnx, onnxscript and onnxruntime: {install_command('export')}, or choose the runtime torch-export"


class Timing(NamedTuple):
    """Median of repeated passes, and the interquartile range. Milliseconds."""

    median: float
    iqr: float


def time_calls(call: Callable[[], Any], settings: LatencySettings) -> Timing:
    """Times `settings.repeats` calls, after `settings.warmup` calls."""
    clock = time.perf_counter if settings.clock == "wall" else time.thread_time
    for _ in range(settings.warmup):
        call()
    times = []
    for _ in range(settings.repeats):
        start = clock()
        call()
        times.append((clock() - start) * MILLISECONDS)
    low, median, high = np.quantile(times, (0.25, 0.5, 0.75))
    return Timing(float(median), float(high - low))


def network_latency(network: nn.Module, image_shape: tuple[int, int, int], settings: LatencySettings) -> Timing:
    """Measures the latency of a batch of `settings.batch_size` images with `settings.runtime`, on the CPU.

    Raises: MissingExtra without ONNX Runtime; any error of torch.export.
    """
    images = _images(image_shape, settings)
    network = network.eval().cpu()
    with torch_threads(settings.threads), torch.no_grad():
        return time_calls(RUNTIMES[settings.runtime](network, images, settings), settings)


def _images(image_shape: tuple[int, int, int], settings: LatencySettings) -> torch.Tensor:
    return torch.randn(settings.batch_size, *image_shape, generator=torch.Generator().manual_seed(0))


@torch.no_grad()
def _torch_export(network: nn.Module, images: torch.Tensor, settings: LatencySettings) -> Callable[[], Any]:
    program = torch.export.export(network, (images,)).module()
    return lambda: program(images)


def _onnxruntime(network: nn.Module, images: torch.Tensor, settings: LatencySettings) -> Callable[[], Any]:
    missing = [name for name in ("onnx", "onnxscript", "onnxruntime") if find_spec(name) is None]
    if missing:
        raise MissingExtra(f"a latency with ONNX Runtime {NO_RUNTIME}; not installed: {', '.join(missing)}")
    import onnxruntime

    program = torch.onnx.export(network, (images,), dynamo=True, verbose=False)
    if program is None:
        raise InvalidInput("expected a program from torch.onnx, got none. Choose the runtime torch-export")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = settings.threads
    options.inter_op_num_threads = 1
    graph = program.model_proto.SerializeToString()
    session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    inputs = {session.get_inputs()[0].name: images.numpy()}
    return lambda: session.run(None, inputs)


RUNTIMES: dict[str, Callable[[nn.Module, torch.Tensor, LatencySettings], Callable[[], Any]]] = {
    "torch-export": _torch_export,
    "onnxruntime": _onnxruntime,
}


@contextmanager
def torch_threads(threads: int) -> Iterator[None]:
    """Sets torch's number of threads within the context."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


# Latency by operation ------------------------------------------------------------------------------------------------


class Operation(NamedTuple):
    """One node of an exported program. Nodes with equal keys have equal functions and shapes, hence equal times."""

    key: str
    call: Callable[[], Any]


def operations_of(network: nn.Module, images: torch.Tensor) -> list[Operation]:
    """Returns the operations of the exported program, in order, callable on random inputs with their shapes."""
    with torch.no_grad():
        program = torch.export.export(network, (images,))
    operations = []
    for node in program.graph.nodes:
        if node.op != "call_function":
            continue
        shapes: list[str] = []

        def concrete(value: Any, shapes: list[str] = shapes) -> Any:
            if not isinstance(value, torch.fx.Node):
                return value
            fake = value.meta["val"]
            shapes.append(_shape(fake))
            return _random(fake)

        args, kwargs = tree_map(concrete, (node.args, node.kwargs))
        constants = tree_map(lambda value: "x" if isinstance(value, torch.fx.Node) else value, (node.args, node.kwargs))
        key = f"{node.target} {constants} {' '.join(shapes)}"
        operations.append(Operation(key, partial(node.target, *args, **kwargs)))
    return operations


def _shape(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"{'x'.join(map(str, value.shape))}:{value.dtype}:{'x'.join(map(str, value.stride()))}"
    return f"[{', '.join(map(_shape, value))}]" if isinstance(value, list | tuple) else str(value)


def _random(value: Any) -> Any:
    """Creates random tensors with the shapes, strides and types of fake ones."""
    if isinstance(value, list | tuple):
        return type(value)(map(_random, value))
    if not isinstance(value, torch.Tensor):
        return value
    tensor = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype)
    return tensor.normal_().abs_() if tensor.is_floating_point() else tensor.zero_()


def operation_latencies(
    network: nn.Module, image_shape: tuple[int, int, int], settings: LatencySettings, timings: dict[str, Timing]
) -> list[str]:
    """Returns the keys of a network's operations, in order, and adds missing operations to `timings`."""
    operations = operations_of(network.eval().cpu(), _images(image_shape, settings))
    with torch_threads(settings.threads), torch.no_grad():
        for operation in operations:
            if operation.key not in timings:
                timings[operation.key] = time_calls(operation.call, settings)
    return [operation.key for operation in operations]


# Peak memory ---------------------------------------------------------------------------------------------------------


class OperationTrace(TorchDispatchMode):
    """Records the pieces of memory that each operation reads or writes.

    Args:
        left_out: Tensors whose memory does not count.

    Attributes:
        steps: Numbers of the pieces of every operation, in order.
        sizes: Bytes of every piece.
    """

    def __init__(self, left_out: Iterable[torch.Tensor]) -> None:
        super().__init__()
        self.steps: list[set[int]] = []
        self.sizes: list[int] = []
        self._left_out = {_address(tensor) for tensor in left_out}
        self._numbers: dict[int, int] = {}
        self._storages: list[torch.UntypedStorage] = []  # stored, so that no address is reused

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        outputs = func(*args, **(kwargs or {}))
        self.steps.append(set(self._pieces((args, kwargs, outputs))))
        return outputs

    def _pieces(self, values: Any) -> Iterator[int]:
        for tensor in tree_leaves(values):
            if isinstance(tensor, torch.Tensor) and (address := _address(tensor)) not in self._left_out:
                if address not in self._numbers:
                    self._numbers[address] = len(self.sizes)
                    self.sizes.append(tensor.untyped_storage().nbytes())
                    self._storages.append(tensor.untyped_storage())
                yield self._numbers[address]


@torch.no_grad()
def peak_activation_bytes(network: nn.Module, image_shape: tuple[int, int, int]) -> int:
    """Returns the maximum bytes of simultaneously alive activations for one image (C, H, W). Keeps the network's mode.

    It records a pass in evaluation mode operation by operation. An activation is a piece of memory that an operation
    writes, or the image; views and in-place results share a piece. An activation is alive from the operation that
    writes it to the last that reads it; during an operation, its inputs and outputs are alive. Weights, buffers,
    workspaces of kernels and allocator overhead do not count. The result is the memory that a runtime with a perfect
    memory plan and without fused operations needs.
    """
    training = network.training
    network.eval()
    try:
        tensors = [*network.parameters(), *network.buffers()]
        reference = next(network.parameters())
        image = torch.zeros(1, *image_shape, device=reference.device, dtype=reference.dtype)
        with OperationTrace(tensors) as trace:
            network(image)
    finally:
        network.train(training)
    return peak_of(trace.steps, trace.sizes)


def peak_of(steps: Sequence[set[int]], sizes: Sequence[int]) -> int:
    """Returns the largest sum of `sizes` alive at a step, each from the first to the last step that contains it."""
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for place, step in enumerate(steps):
        for number in step:
            first.setdefault(number, place)
            last[number] = place
    changes = [0] * (len(steps) + 1)
    for number, place in first.items():
        changes[place] += sizes[number]
        changes[last[number] + 1] -= sizes[number]
    alive = peak = 0
    for change in changes:
        alive += change
        peak = max(peak, alive)
    return peak


def _address(tensor: torch.Tensor) -> int:
    """Returns a number that is equal for tensors that share memory, also on the meta device."""
    return int(tensor.untyped_storage()._cdata)
