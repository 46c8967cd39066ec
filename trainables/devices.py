"""The device that work runs on, its random generators, and what it says when its memory runs out."""

import atexit
import gc
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from archray.errors import InvalidInput, is_out_of_memory

OUT_OF_MEMORY = "out of memory"  # how the reason of a trial begins that may do better with more of a card
atexit.register(gc.unfreeze)  # what `free_memory` froze would be leaked, as libraries bound by nanobind complain


def choose_device(wanted: str, *, gpus: float | None = None) -> torch.device:
    """The device that `wanted` means here.

    wanted: "auto", or a device in torch's words. gpus: the share of GPUs that Ray gave this work; None where Ray was
    not asked, and "auto" takes a GPU if there is one. Raises: InvalidInput for a device that torch does not know or
    this machine lacks.
    """
    if wanted == "auto":
        return torch.device("cuda" if torch.cuda.is_available() and gpus != 0 else "cpu")
    try:
        device = torch.device(wanted)
    except RuntimeError as error:
        raise InvalidInput(f"expected a device such as auto, cpu, cuda or cuda:1, got {wanted!r}") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise InvalidInput(f"the device {wanted!r} needs a CUDA GPU and none is visible here; use auto or cpu")
    return device


def memory_share(gpus: float | None) -> float:
    """The part of its card's memory that work with `gpus` of Ray's may take; all of it where Ray was not asked."""
    return gpus if gpus is not None and 0 < gpus < 1 else 1.0


def limit_memory(device: torch.device, gpus: float | None) -> None:
    """Lets this process take no more of a CUDA card's memory than its share, so that trials beside it keep theirs.

    What it asks for beyond ends as `torch.OutOfMemoryError`. The limit is on what torch's allocator holds; the half
    gigabyte or so of a CUDA context comes on top. Called again, it sets the limit anew.
    """
    if device.type == "cuda":
        # The index, as torch takes no device without one here; None is the current card, the only one of most trials.
        torch.cuda.set_per_process_memory_fraction(memory_share(gpus), device.index)


def out_of_memory(error: BaseException) -> str | None:
    """The reason, `OUT_OF_MEMORY` and what `error` says, if memory ran out, a GPU's or the CPU's; else None."""
    return f"{OUT_OF_MEMORY}: {error}" if is_out_of_memory(error) else None


def free_memory() -> None:
    """Gives back what was dropped, reference cycles and torch's blocks on a GPU included, for the next work to find.

    What survives, the libraries above all, is not looked at again: the next call takes milliseconds, not half a second.
    """
    gc.collect()
    gc.freeze()
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()


@contextmanager
def own_randomness(seed: int, device: torch.device | None = None) -> Iterator[None]:
    """Lets what draws from torch's global generators (dropout, initial weights) draw from `seed` alone.

    device: whose generator is seeded beside the CPU's, where it is a GPU; the only ones that are put back.
    """
    cuda = [device.index] if device is not None and device.type == "cuda" else []
    with torch.random.fork_rng(devices=cuda):
        # Not torch.manual_seed: that would seed every GPU of the process, and fork_rng puts back only these.
        for generator in (torch.default_generator, *(torch.cuda.default_generators[index] for index in cuda)):
            generator.manual_seed(seed)
        yield
