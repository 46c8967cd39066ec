"""How a supernet's weights are trained, and when its architecture learns. Defaults: DARTS' on CIFAR-10."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from archray.trainables.training_settings import Count, NotNegative, Positive, SGDSettings

SECOND_ORDER = "bilevel-second-order"


class SupernetTrainingSettings(SGDSettings):
    """How weights and architecture parameters are trained side by side.

    The defaults are DARTS' search on CIFAR-10 (Liu et al. 2019, App. A.1): 50 epochs, batch 64, SGD at 0.025 down to
    0.001, momentum 0.9, weight decay 3e-4, clipping at 5. GAEA PC-DARTS (App. C.1.1): batch 256, lr 0.1, lr_min 0,
    10 epochs of warm-up.

    Attributes:
        epochs: passes over the weights' images.
        lr_min: the learning rate at the end of the cosine.
        objective: `bilevel`, the architecture's gradient is of its own part of the training data at the present
            weights; `bilevel-second-order`, at weights one step ahead (DARTS' finite difference); `erm`, single
            level, both gradients are of all training data.
        architecture_data: `training`, the architecture learns from a part of the training data; `validation`, from the
            validation data, and all training data are the weights' (thesis 5.3.2).
        architecture_fraction: share of the training data that is the architecture's own, drawn by seed.
        blocks: `alternating`, each step updates the architecture, then the weights; `random`, each of twice as many
            steps updates one of them, drawn with equal chances (GAEA, Algorithm 1); `phases`, in each epoch all steps
            of the weights come first, then as many of the architecture (ENAS, section 2.2).
        warmup_epochs: first epochs, in which only weights are updated.
        evaluation_batch: images per forward pass of an evaluation. Where a network normalises by the statistics of
            the batch at hand, as all supernets here do, it also changes results.
    """

    epochs: Count = 50
    batch_size: Count = 64
    lr: Positive = 0.025
    lr_min: NotNegative = 0.001
    nesterov: bool = False
    weight_decay: NotNegative = 3e-4
    grad_clip: Positive | None = 5.0
    objective: Literal["bilevel", "bilevel-second-order", "erm"] = "bilevel"
    architecture_data: Literal["training", "validation"] = "training"
    architecture_fraction: float = Field(0.5, gt=0, lt=1)
    blocks: Literal["alternating", "random", "phases"] = "alternating"
    warmup_epochs: int = Field(0, ge=0)
    evaluation_batch: Count = 512

    @model_validator(mode="after")
    def _consistent(self) -> SupernetTrainingSettings:
        if self.lr_min > self.lr:
            raise ValueError(f"expected lr_min to be at most lr, {self.lr}, got {self.lr_min}")
        if self.objective == "erm" and self.architecture_data == "validation":
            raise ValueError("erm learns both from all training data; choose bilevel, or architecture_data training")
        return self
