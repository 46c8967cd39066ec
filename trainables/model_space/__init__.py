"""Any `nn.Module` as a search space: choices inside a model, its architectures and their networks."""

from archray.trainables.model_space.choices import Choice, Edges, Repeat, Width
from archray.trainables.model_space.space import ModelSpace, model_space
from archray.trainables.model_space.supernet import ModelSupernet, SlicedModel

__all__ = ["Choice", "Edges", "ModelSpace", "ModelSupernet", "Repeat", "SlicedModel", "Width", "model_space"]
