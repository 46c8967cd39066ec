"""Networks that run out of memory if their trial has too small a share of a simulated GPU."""

from archray.trainables.spaces import Decision, Space

NEEDED = {"4": 0.0, "6": 0.5, "8": 2.0}  # share of a GPU by width: the last never fits


class MemorySpace(Space):
    name = "memory"
    decisions = (Decision("width", tuple(NEEDED)), Decision("kernel", ("1", "3")))

    def build(self, architecture, *, in_channels, num_classes, normalization):
        import ray
        import torch
        from torch import nn

        needed = NEEDED[architecture[0]] if normalization == "training" else 0.0
        width, kernel = int(architecture[0]), int(architecture[1])

        def share():
            return ray.get_runtime_context().get_assigned_resources().get("GPU", 0.0)

        class Greedy(nn.Module):
            def forward(self, x):
                # Only in a trial: the driver also builds the network, to write the model.
                if needed and torch.is_grad_enabled() and share() < needed:
                    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate more than the share")
                return x

        return nn.Sequential(
            nn.Conv2d(in_channels, width, kernel, padding=kernel // 2),
            nn.ReLU(),
            Greedy(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(width, num_classes),
        )
