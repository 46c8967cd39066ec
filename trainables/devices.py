"""The device of a trial, its random generators, and errors when memory runs out."""

import atexit
import gc
import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from archray.errors import OUT_OF_MEMORY, InvalidInput, is_out_of_memory

CONTEXT_BYTES = 5 * 10**8  # GPU memory of a CUDA process in addition to torch's allocator
atexit.register(gc.unfreeze)  # otherwise nanobind reports objects that `free_memory` froze as leaked


def machine_memory() -> float:
    """Returns the memory of this machine in bytes; infinity if it is unknown."""
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (ValueError, OSError, AttributeError):
        return math.inf


def choose_device(wanted: str, *, gpus: float | None = None) -> torch.device:
    """Returns the device `wanted` on this machine.

    Args:
        wanted: "auto", or a torch device.
        gpus: Share of GPUs from Ray; None without Ray, where "auto" takes a GPU if there is one.

    Raises: InvalidInput for an unknown or missing device.
    """
    if wanted == "auto":
        return torch.device("cuda" if torch.cuda.is_available() and gpus != 0 else "cpu")
    try:
        device = torch.device(wanted)
    except RuntimeError as error:
        raise InvalidInput(f"expected a device such as auto, cpu, cuda or cuda:1, got {wanted!r}") from error
    if device.type == "cuda":
        visible = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if visible == 0:
            raise InvalidInput(f"expected a visible CUDA GPU for the device {wanted!r}, got none. Use auto or cpu")
        if (device.index or 0) >= visible:
            names = "cuda:0" if visible == 1 else f"cuda:0 to cuda:{visible - 1}"
            raise InvalidInput(f"expected a visible CUDA GPU, {names}, got {wanted!r}. Use one of them, or auto")
    return device


def cpu_has(*features: str) -> bool:
    """Whether this CPU has one of these instruction sets, named as by torch; False if torch cannot tell."""
    capabilities: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()  # not in all supported versions
    return any(capabilities.get(feature, False) for feature in features)


def memory_share(gpus: float | None) -> float:
    """Returns the share of a GPU's memory for work with `gpus` from Ray; all of it without Ray."""
    return gpus if gpus is not None and 0 < gpus < 1 else 1.0


def limit_memory(device: torch.device, gpus: float | None) -> None:
    """Limits this process to its share of a GPU's memory, so that other trials on the GPU keep theirs.

    Beyond the limit torch raises `torch.OutOfMemoryError`. A part of a share is reserved for the process's CUDA
    context, which torch does not count. A later call replaces the limit.
    """
    if device.type == "cuda":
        fraction = memory_share(gpus)
        if fraction < 1:
            fraction = allocator_fraction(fraction, torch.cuda.get_device_properties(device).total_memory)
        # torch needs an index here; None is the current GPU, the only one in most trials.
        torch.cuda.set_per_process_memory_fraction(fraction, device.index)


def limited_worker(worker: Callable[..., Any], gpus: float) -> Callable[..., Any]:
    """Returns a function that limits its process as a trial with `gpus` from Ray, and then calls the worker.

    It has the worker's name, for the names of actors.
    """

    def construct(**kwargs: Any) -> Any:
        limit_memory(choose_device(kwargs.get("device", "auto"), gpus=gpus), gpus)
        return worker(**kwargs)

    construct.__name__ = getattr(worker, "__name__", repr(worker))
    return construct


def allocator_fraction(share: float, gpu: int) -> float:
    """Returns the fraction of a GPU with `gpu` bytes for torch's allocator in a process with a `share` of the GPU.

    It is at least half of the share, since torch needs memory on small GPUs too.
    """
    return max(share / 2, share - CONTEXT_BYTES / gpu)


def out_of_memory(error: BaseException) -> str | None:
    """Returns the reason, `OUT_OF_MEMORY` and the text of `error`, if memory of a GPU or the CPU ran out; else None."""
    return f"{OUT_OF_MEMORY}: {error}" if is_out_of_memory(error) else None


def free_memory() -> None:
    """Frees dropped objects, including reference cycles and torch's blocks on a GPU.

    Remaining objects, mostly of libraries, are frozen, so that the next call takes milliseconds instead of half a
    second.
    """
    gc.collect()
    gc.freeze()
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()


@contextmanager
def tf32(allowed: bool) -> Iterator[None]:
    """Allows or forbids TF32 in CUDA's float32 convolutions and matrix products, within the context.

    torch allows it in convolutions by default: from Ampere on, their inputs keep 10 of 23 bits. This is enough for
    training, but not for second differences of losses, and it moves training-free metrics by up to 8 %.
    """
    backends: tuple[Any, Any] = (torch.backends.cudnn, torch.backends.cuda.matmul)
    before = [backend.allow_tf32 for backend in backends]
    try:
        for backend in backends:
            backend.allow_tf32 = allowed
        yield
    finally:
        for backend, value in zip(backends, before, strict=True):
            backend.allow_tf32 = value


@contextmanager
def restored_randomness(seed: int, device: torch.device | None = None) -> Iterator[None]:
    """Makes draws from torch's global generators (dropout, initial weights) depend only on `seed`, within the context.

    device: if it is a GPU, its generator is seeded too. The generators are restored afterwards.
    """
    cuda = []
    if device is not None and device.type == "cuda":
        cuda = [torch.cuda.current_device() if device.index is None else device.index]
    with torch.random.fork_rng(devices=cuda):
        # torch.manual_seed would seed every GPU of the process, and fork_rng restores only these.
        for generator in (torch.default_generator, *(torch.cuda.default_generators[index] for index in cuda)):
            generator.manual_seed(seed)
        yield
