"""Small networks that contain a module, for spaces whose networks fail in the workers of Ray."""


def small_network(architecture, module, *, in_channels, num_classes):
    """Builds a network of the choices (width, kernel, ...) that computes `module` after its first layer."""
    from torch import nn

    width, kernel = map(int, architecture[:2])
    return nn.Sequential(
        nn.Conv2d(in_channels, width, kernel, padding=kernel // 2),
        nn.ReLU(),
        module,
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(width, num_classes),
    )


def in_actor():
    """Whether this process is an actor of Ray. The driver also computes passes of networks, to check them."""
    import ray

    return ray.is_initialized() and ray.get_runtime_context().get_actor_id() is not None
