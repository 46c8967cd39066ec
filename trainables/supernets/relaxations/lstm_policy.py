"""The policy of ENAS: an LSTM that takes one decision after the other. Pham et al. 2018, sections 2.1 and 2.3."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from archray.trainables.spaces import Decision
from archray.trainables.supernets.optimizers.reinforce import Sampled

INITIAL = 0.1  # weights are uniform in [-0.1, 0.1] (section 3.2)


class Controller(nn.Module):
    """p(a) = prod_d p(a_d | a_1 ... a_{d-1}) over the decisions of a space, by one layer of an LSTM.

    1. The first input is a trained vector; each further one is the embedding of the choice before.
    2. Logits of a decision are a linear function of the state, bounded: tanh_constant tanh(logits / temperature).
    3. The choice is drawn from their softmax.

    From the paper: the LSTM, its units, the feedback, the bounds, the initial weights. Of ours: decisions are those of
    the space, so a pair of inputs is one choice, where ENAS draws the inputs one by one with attention over states of
    earlier nodes; decisions among the same choices share embedding and logits' weights, as operations do in ENAS. All
    combinations of choices are architectures in every space that has a supernet: there is nothing to mask.

    Args:
        decisions: each with two choices or more.
        seed: of the initial weights; torch's global generator is left as it was.
    """

    def __init__(
        self,
        decisions: Sequence[Decision],
        *,
        units: int = 100,
        temperature: float | None = 5.0,
        tanh_constant: float | None = 2.5,
        seed: int,
    ) -> None:
        super().__init__()
        self.decisions = tuple(decisions)
        self._temperature, self._tanh_constant = temperature, tanh_constant
        kinds = list(dict.fromkeys(decision.choices for decision in self.decisions))
        self._kinds = [kinds.index(decision.choices) for decision in self.decisions]
        with torch.random.fork_rng(devices=[]):  # torch draws weights of its own first
            self.cell = nn.LSTMCell(units, units)
            self.embeddings = nn.ModuleList(nn.Embedding(len(choices), units) for choices in kinds)
            self.logits = nn.ModuleList(nn.Linear(units, len(choices)) for choices in kinds)
        self.start = nn.Parameter(torch.empty(1, units))
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.uniform_(-INITIAL, INITIAL, generator=generator)

    def forward(self, count: int, generator: torch.Generator) -> Sampled:
        """`count` independent samples."""
        x = self.start.expand(count, -1)  # (n, units)
        state: tuple[Tensor, Tensor] | None = None
        choices, entropies = [], []
        log_probabilities = torch.zeros(count)
        for kind in self._kinds:
            state = self.cell(x, state)
            log_p = self._bounded(self.logits[kind](state[0])).log_softmax(-1)  # (n, choices)
            p = log_p.detach().exp()
            chosen = torch.multinomial(p, 1, generator=generator)  # (n, 1)
            log_probabilities = log_probabilities + log_p.gather(1, chosen)[:, 0]
            choices.append(chosen[:, 0])
            entropies.append(torch.special.entr(p).sum(-1))
            x = self.embeddings[kind](chosen[:, 0])
        return Sampled(torch.stack(choices, 1), log_probabilities, torch.stack(entropies, 1))

    def _bounded(self, logits: Tensor) -> Tensor:
        if self._temperature is not None:
            logits = logits / self._temperature
        return logits if self._tanh_constant is None else self._tanh_constant * logits.tanh()
