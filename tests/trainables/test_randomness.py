"""Within the block torch's global generators depend on a seed, and after it they continue undisturbed."""

from __future__ import annotations

import pytest
import torch

from archray.trainables.devices import restored_randomness

DEVICES = [None, torch.device("cpu"), *([torch.device("cuda", 0)] if torch.cuda.is_available() else [])]


@pytest.mark.parametrize("device", DEVICES, ids=str)
def test_random_numbers_depend_on_the_seed(device: torch.device | None) -> None:
    draws = []
    for seed in (1, 1, 2):
        torch.rand(3)  # earlier random numbers do not matter
        with restored_randomness(seed, device):
            draws.append(torch.rand(5, device=device))
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])


@pytest.mark.parametrize("device", DEVICES, ids=str)
def test_the_global_generators_are_restored(device: torch.device | None) -> None:
    states = [torch.get_rng_state, torch.cuda.get_rng_state] if torch.cuda.is_available() else [torch.get_rng_state]
    before = [state() for state in states]
    with pytest.raises(KeyError), restored_randomness(1, device):
        raise KeyError(torch.rand(5, device=device).sum().item())
    assert all(torch.equal(state(), old) for state, old in zip(states, before, strict=True))
