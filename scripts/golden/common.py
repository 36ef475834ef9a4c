"""What the scripts of all rooms share: where files go, how they are written, and rows packed without padding."""

import json
from pathlib import Path

import torch
from safetensors.torch import save as serialize
from torch import Tensor

ROOT = Path(__file__).resolve().parents[2]
# The size of a layer by itself.
MODEL_DIM = 16
HEADS = 4


def default_folder(script: str) -> Path:
    """The folder from which the tests of taper-model read what the file `script` makes: its room's namesake."""
    return ROOT / "crates" / "model" / "tests" / "golden" / Path(script).resolve().parent.name


def setup() -> None:
    """One thread and deterministic kernels, so that a second run writes the same bytes."""
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)


def save(path: Path, script: str, tensors: dict[str, Tensor], **settings: object) -> None:
    """Floats as f32, integers as u32 (i64 if some are negative); metadata names the script and PyTorch version."""
    stored = {}
    for name, tensor in tensors.items():
        if tensor.is_floating_point():
            dtype = torch.float32
        else:
            dtype = torch.int64 if tensor.min() < 0 else torch.uint32
        stored[name] = tensor.detach().to(dtype).contiguous().clone()
    made_by = Path(script).resolve().relative_to(ROOT).as_posix()
    metadata = {"script": made_by, "torch": torch.__version__}
    metadata |= {key: str(value) for key, value in settings.items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(sort_metadata(serialize(stored, metadata)))
    print(f"{path.name}: {len(stored)} tensors, {path.stat().st_size} bytes")


def sort_metadata(content: bytes) -> bytes:
    """The library orders metadata differently in each run; sorted, the same tensors give the same file."""
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode().ljust(size)
    assert len(text) == size
    return content[:8] + text + content[8 + size :]


def random(generator: torch.Generator, *shape: int, scale: float = 1.0, mean: float = 0.0) -> Tensor:
    """Normal values as float64 that float32 holds exactly."""
    values = torch.randn(*shape, generator=generator, dtype=torch.float32)
    return (values * scale + mean).to(torch.float32).to(torch.float64)


def padding_mask(lengths: list[int]) -> Tensor:
    """(B, L), true where a position is padding: what PyTorch calls a key padding mask."""
    return torch.arange(max(lengths))[None, :] >= torch.tensor(lengths)[:, None]


def causal_mask(length: int) -> Tensor:
    """(L, L), true where a query may not see a key."""
    return torch.ones(length, length, dtype=torch.bool).triu(1)


def pack(padded: Tensor, lengths: list[int]) -> Tensor:
    """(B, L, …) to (N, …): the real rows only."""
    return padded[~padding_mask(lengths)]


def pad(packed: Tensor, lengths: list[int]) -> Tensor:
    """(N, …) to (B, L, …), zeros as padding; the inverse of `pack`."""
    padded = packed.new_zeros(len(lengths), max(lengths), *packed.shape[1:])
    return padded.masked_scatter(
        ~padding_mask(lengths).reshape(len(lengths), -1, *[1] * (packed.dim() - 1)), packed
    )


def relative_error(value: Tensor, reference: Tensor) -> float:
    """‖value − reference‖ / ‖reference‖."""
    return float((value.detach().double() - reference.detach()).norm() / reference.detach().norm())
