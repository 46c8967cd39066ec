"""A simulated GPU: tensors with the device `cuda:0` whose values are on the CPU, and which reject mixed devices.

`FakeTensorMode` does this without values. Each operation is checked for devices and generators like CUDA's kernels
check them, and is then computed on the CPU.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any, ClassVar
from unittest import mock

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

import archray.trainables

aten = torch.ops.aten
GPU = torch.device("cuda", 0)
MIXED = "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!"
# The device that C++ sees. CUDA would need a driver for its streams in a backward pass.
HIDDEN = "lazy"
AUTOCAST = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCUDA)
COPIES = {
    aten.copy_.default, aten.copy.default, aten._foreach_copy_.default, aten._to_copy.default, aten.set_.source_Tensor
}  # fmt: skip
INDEXING = {
    aten.index.Tensor, aten.index_put_.default, aten.index_put.default, aten._index_put_impl_.default,
    aten._unsafe_index.Tensor, aten._unsafe_index_put.default,
}  # fmt: skip
# Operations that accept a CPU tensor without dimensions as a number.
NUMBERS = (
    "where", "fill_", "masked_fill", "masked_fill_", "lerp", "lerp_", "addcmul", "addcdiv", "clamp", "pow",
    "linalg_vector_norm", "div", "mul", "add", "sub",
)  # fmt: skip
# Operations for which the host waits for the GPU.
WAITS = {
    "_local_scalar_dense", "nonzero", "masked_select", "unique_dim", "_unique2", "equal", "is_nonzero",
    "_linalg_check_errors", "repeat_interleave", "unique_consecutive",
}  # fmt: skip
TRAINABLES = f"{archray.trainables.__path__[0]}/"
CPU_GENERATOR, CPU_LOAD = torch.Generator, torch.load


class GPUGenerator(CPU_GENERATOR):
    made: ClassVar[dict[int, Any]] = {}  # by address, as torch passes another Python object to an operation

    def __new__(cls) -> GPUGenerator:
        self = super().__new__(cls)
        cls.made[self._cdata] = self  # kept, so that no other generator gets its address
        return self

    @property
    def device(self) -> torch.device:
        return GPU


class _GeneratorType(type):
    def __call__(cls, device: Any = "cpu") -> Any:
        return GPUGenerator() if torch.device(device).type == "cuda" else CPU_GENERATOR()

    def __instancecheck__(cls, other: Any) -> bool:
        return isinstance(other, CPU_GENERATOR)


class Generator(metaclass=_GeneratorType):
    pass


class GPUTensor(torch.Tensor):
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]
    held: torch.Tensor

    @staticmethod
    def __new__(cls: Any, held: torch.Tensor) -> Any:
        self = torch.Tensor._make_wrapper_subclass(
            cls, held.size(), strides=held.stride(), storage_offset=held.storage_offset(), dtype=held.dtype,
            layout=held.layout, device=HIDDEN, requires_grad=False, _extra_dispatch_keys=AUTOCAST,
        )  # fmt: skip
        self.held = held
        return self

    device = property(lambda self: GPU)
    is_cuda = property(lambda self: True)
    is_cpu = property(lambda self: False)
    is_meta = property(lambda self: False)

    def numpy(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError("can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() first.")

    __array__ = numpy

    def new_tensor(self, data: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Any:
        return torch.tensor(data, dtype=dtype or self.dtype, device=device or GPU, requires_grad=requires_grad)

    def tolist(self) -> Any:
        return self.detach().cpu().tolist()

    def get_device(self) -> int:
        return 0

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        if id(self) not in memo:
            with torch.no_grad():
                copied: Any = self.detach().clone()
            copied.requires_grad_(self.requires_grad)
            memo[id(self)] = (
                torch.nn.Parameter(copied, self.requires_grad) if isinstance(self, torch.nn.Parameter) else copied
            )
        return memo[id(self)]

    def __reduce_ex__(self, protocol: Any) -> Any:  # `load` moves the CPU tensor to the device of map_location
        return self.held.detach().requires_grad_(self.requires_grad).__reduce_ex__(protocol)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return STATE.run(func, args, kwargs or {})


class Dispatch(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return STATE.run(func, args, kwargs or {})


class State:
    """The operations of a simulated GPU.

    Attributes:
        launches: Number of operations that launch a kernel, by name.
        waits: Number of operations for which the host waits, by name and line of archray.
    """

    def __init__(self) -> None:
        self.launches: Counter[str] = Counter()
        self.waits: Counter[tuple[str, str]] = Counter()
        self.default = GPUGenerator()

    def run(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Checks the devices of an operation, and computes it on the CPU."""
        name = func.overloadpacket.__name__
        flat, structure = tree_flatten((args, kwargs))
        inputs = [x for x in flat if isinstance(x, GPUTensor)]
        device = None if kwargs.get("device") is None else torch.device(kwargs["device"])
        if func in (aten._pin_memory.default, aten.pin_memory.default):
            return args[0]
        if inputs and func not in COPIES:
            self._check_devices(func, name, args, flat)
        if device is not None:
            on_gpu = device.type in ("cuda", HIDDEN)
        elif func in COPIES and func is not aten._to_copy.default:
            on_gpu = isinstance(args[0], GPUTensor)
        else:
            on_gpu = bool(inputs) and func is not aten._local_scalar_dense.default
        generators = [x for x in flat if isinstance(x, CPU_GENERATOR)]
        for generator in generators:
            found = "cuda" if generator._cdata in GPUGenerator.made else "cpu"
            expected = "cuda" if on_gpu else "cpu"
            if found != expected:
                raise RuntimeError(f"Expected a '{expected}' device type for generator but found '{found}' ({func})")
        if inputs or on_gpu:
            self._count(func, name, args, kwargs, on_gpu)
        if func is aten._efficientzerotensor.default:  # has no memory
            func = aten.zeros.default
        held = {id(x.held): x for x in inputs}
        inner_args, inner_kwargs = tree_unflatten([x.held if isinstance(x, GPUTensor) else x for x in flat], structure)
        if device is not None and on_gpu:
            inner_kwargs["device"] = torch.device("cpu")
        inner_kwargs.pop("pin_memory", None)
        draws = torch.Tag.nondeterministic_seeded in func.tags and on_gpu and not generators
        with self._default_draws() if draws else ExitStack():
            result = func(*inner_args, **inner_kwargs)
        if torch.Tag.inplace_view in func.tags:
            for changed in inputs[:1]:
                _restride(changed)

        def wrapped(x: Any) -> Any:
            if not isinstance(x, torch.Tensor):
                return x
            return held[id(x)] if id(x) in held else GPUTensor(x) if on_gpu else x

        return tree_map(wrapped, result)

    def _check_devices(self, func: Any, name: str, args: Any, flat: Sequence[Any]) -> None:
        cpu = [x for x in flat if isinstance(x, torch.Tensor) and not isinstance(x, GPUTensor)]
        if func is aten.native_batch_norm_backward.default and args[2] is None and any(args[-1][1:]):
            raise RuntimeError("tensor does not have a device (batch norm without a weight, asked for its gradient)")
        if not cpu:
            return
        if func in INDEXING:
            if not isinstance(args[0], GPUTensor):
                raise RuntimeError("indices should be on the same device as the indexed tensor (cpu)")
            if len(args) > 2 and not isinstance(args[2], GPUTensor) and args[2].dim() > 0:
                raise RuntimeError(f"{MIXED} ({func}, values)")
            self.waits[f"{name}, indices on the CPU", _line()] += 1
            return
        numbers = torch.Tag.pointwise in func.tags or name in NUMBERS or name.startswith(("_foreach_", "_fused_"))
        for x in cpu:
            if x.dim() > 0 or not numbers:
                raise RuntimeError(f"{MIXED} ({func}, CPU argument of shape {tuple(x.shape)})")
        if name.endswith("_") and isinstance(args[0], torch.Tensor) and not isinstance(args[0], GPUTensor):
            raise RuntimeError(f"{MIXED} ({func}, in place on the CPU)")

    def _count(self, func: Any, name: str, args: Any, kwargs: dict[str, Any], on_gpu: bool) -> None:
        crosses = False
        if func is aten._to_copy.default:
            crosses = isinstance(args[0], GPUTensor) != on_gpu
            crosses &= not (on_gpu and kwargs.get("non_blocking"))  # a copy to the GPU need not wait
        elif func is aten.copy_.default:
            crosses = isinstance(args[0], GPUTensor) != isinstance(args[1], GPUTensor)
        masks = func in INDEXING and any(
            isinstance(index, torch.Tensor) and index.dtype in (torch.bool, torch.uint8) for index in args[1]
        )
        if name in WAITS or crosses or masks:
            self.waits[name, _line()] += 1
        view = any(a.alias_info is not None and not a.alias_info.is_write for a in func._schema.arguments)
        if not view and not name.startswith(("empty", "detach", "_local_scalar", "lift", "alias", "_unsafe_view")):
            self.launches[name] += 1

    @contextmanager
    def _default_draws(self) -> Iterator[None]:
        """Draws from the GPU's default generator."""
        of_cpu = torch.default_generator.get_state()
        torch.default_generator.set_state(self.default.get_state())
        try:
            yield
        finally:
            self.default.set_state(torch.default_generator.get_state())
            torch.default_generator.set_state(of_cpu)


STATE = State()


def _line() -> str:
    """Returns the innermost line of the project that called the operation."""
    frame: Any = sys._getframe(2)
    while frame is not None:
        name = frame.f_code.co_filename
        if name.startswith(TRAINABLES):
            return f"{name.removeprefix(TRAINABLES)}:{frame.f_lineno}"
        frame = frame.f_back
    return "?"


def _restride(x: GPUTensor) -> None:
    """Gives the wrapper the shape of its values, after a change in place."""
    with torch.utils._mode_utils.no_dispatch():
        included = torch._C._meta_in_tls_dispatch_include()
        torch._C._set_meta_in_tls_dispatch_include(True)
        try:
            aten.as_strided_.default(x, x.held.size(), x.held.stride(), x.held.storage_offset())
        finally:
            torch._C._set_meta_in_tls_dispatch_include(included)


def _load(file: Any, map_location: Any = None, **kwargs: Any) -> Any:
    wanted = None if map_location is None or callable(map_location) else torch.device(map_location)
    if wanted is None or wanted.type != "cuda":
        return CPU_LOAD(file, map_location=map_location, **kwargs)
    content = CPU_LOAD(file, map_location="cpu", **kwargs)
    return tree_map(lambda x: x.to("cuda") if isinstance(x, torch.Tensor) else x, content)


def _returns(value: Any) -> Callable[..., Any]:
    return lambda *args, **kwargs: value


@contextmanager
def simulated_gpu() -> Iterator[State]:
    """Makes torch see one GPU in this process."""
    torch._C._ensureCUDADeviceGuardSet()
    properties = SimpleNamespace(total_memory=2**30, name="simulated", major=9, minor=0, multi_processor_count=1)
    replaced = {
        "is_available": _returns(True), "is_initialized": _returns(True), "device_count": _returns(1),
        "current_device": _returns(0), "_lazy_init": _returns(None), "init": _returns(None),
        "synchronize": lambda device=None: STATE.waits.update([("synchronize", _line())]),
        "empty_cache": _returns(None), "reset_peak_memory_stats": _returns(None),
        "max_memory_allocated": _returns(2**20), "max_memory_reserved": _returns(2**21),
        "memory_allocated": _returns(2**20), "memory_reserved": _returns(2**21),
        "mem_get_info": _returns((2**29, 2**30)), "get_device_properties": _returns(properties),
        "get_device_name": _returns("simulated"), "get_device_capability": _returns((9, 0)),
        "set_per_process_memory_fraction": _returns(None), "default_generators": (STATE.default,),
        "is_bf16_supported": _returns(True), "_lazy_call": lambda call, **options: call(),
        "is_current_stream_capturing": _returns(False), "_is_in_bad_fork": _returns(False),
    }  # fmt: skip
    with ExitStack() as stack:

        def replace(holder: Any, name: str, value: Any) -> None:
            stack.enter_context(mock.patch.object(holder, name, value))

        for name, value in replaced.items():
            replace(torch.cuda, name, value)
            if hasattr(torch.cuda.random, name):
                replace(torch.cuda.random, name, value)
        replace(torch, "Generator", Generator)
        replace(torch, "load", _load)
        replace(torch.accelerator, "current_accelerator", _returns(GPU))
        replace(torch.accelerator, "is_available", _returns(True))
        for module in (sys.modules["torch.optim.optimizer"], torch.utils._foreach_utils):
            if hasattr(module, "_foreach_supported_types"):
                replace(module, "_foreach_supported_types", [torch.Tensor, torch.nn.Parameter, GPUTensor])
        swap = torch.__future__.get_swap_module_params_on_conversion()
        torch.__future__.set_swap_module_params_on_conversion(True)
        stack.callback(torch.__future__.set_swap_module_params_on_conversion, swap)
        lift = torch._C._only_lift_cpu_tensors()
        torch._C._set_only_lift_cpu_tensors(True)  # torch.tensor(..., device="cuda") copies a CPU tensor
        stack.callback(torch._C._set_only_lift_cpu_tensors, lift)
        stack.enter_context(Dispatch())
        yield STATE
