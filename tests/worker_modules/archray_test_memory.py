"""Networks that run out of memory if their trial has too small a share of a simulated GPU."""

from archray_test_networks import in_actor, small_network

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

        def share():
            return ray.get_runtime_context().get_assigned_resources().get("GPU", 0.0)

        class Greedy(nn.Module):
            def forward(self, x):
                if needed and torch.is_grad_enabled() and in_actor() and share() < needed:
                    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate more than the share")
                return x

        return small_network(architecture, Greedy(), in_channels=in_channels, num_classes=num_classes)
