"""Makes state-space.safetensors: state-space layers by the MambaMixer of transformers.

Case `mamba`: its mixer, one sentence. Case `both`: two of them with one projection in front and one behind, the second
of which reads the sentence from its end, as in Vision Mamba. Case `s4d`: its scan with steps, B and C that are the same
at all times, each channel by itself, since the library has them in common. The library computes decays in float32;
here `.float()` keeps float64.

Before the file is written, results and gradients are compared with the recurrence, token by token.
"""

import argparse
from pathlib import Path

import torch
import torch.nn.functional as F
import transformers
from torch import Tensor, nn
from transformers.models.mamba.modeling_mamba import MambaConfig, MambaMixer, mamba_selective_scan

from ..common import default_folder, random, relative_error, save, setup

WIDTH, EXPAND, STATES, RANK, TAPS, LENGTH = 12, 2, 5, 3, 4, 41
CHANNELS = EXPAND * WIDTH
TOLERANCE = 1e-12


def mixer() -> MambaMixer:
    config = MambaConfig(
        hidden_size=WIDTH, expand=EXPAND, state_size=STATES, time_step_rank=RANK, conv_kernel=TAPS, use_bias=False,
        num_hidden_layers=1,
    )
    return MambaMixer(config, 0).double().eval()


def direction(generator: torch.Generator) -> dict[str, Tensor]:
    """What a direction has of its own, as Taper calls it."""
    return {
        "filter.weight": random(generator, CHANNELS, TAPS, scale=0.5),
        "filter.bias": random(generator, CHANNELS, scale=0.5),
        "step_down.weight": random(generator, RANK, CHANNELS, scale=0.3),
        "step_up.weight": random(generator, CHANNELS, RANK, scale=0.5),
        "step_up.bias": random(generator, CHANNELS, mean=-1.0),
        "in_out.weight": random(generator, 2 * STATES, CHANNELS, scale=0.4),
        "log_decay": random(generator, CHANNELS * STATES, scale=0.7),
        "skip": random(generator, CHANNELS),
    }


def put(module: MambaMixer, own: dict[str, Tensor]) -> None:
    module.conv1d.weight.data = own["filter.weight"][:, None].clone()
    module.conv1d.bias.data = own["filter.bias"].clone()
    module.x_proj.weight.data = torch.cat((own["step_down.weight"], own["in_out.weight"]))
    module.dt_proj.weight.data = own["step_up.weight"].clone()
    module.dt_proj.bias.data = own["step_up.bias"].clone()
    module.A_log.data = own["log_decay"].reshape(CHANNELS, STATES).clone()
    module.D.data = own["skip"].clone()


def gradients(module: MambaMixer) -> dict[str, Tensor]:
    of_steps, of_sides = module.x_proj.weight.grad.split((RANK, 2 * STATES))
    return {
        "filter.weight": module.conv1d.weight.grad[:, 0],
        "filter.bias": module.conv1d.bias.grad,
        "step_down.weight": of_steps,
        "step_up.weight": module.dt_proj.weight.grad,
        "step_up.bias": module.dt_proj.bias.grad,
        "in_out.weight": of_sides,
        "log_decay": module.A_log.grad.flatten(),
        "skip": module.D.grad,
    }


def recurrence(gated: Tensor, own: dict[str, Tensor]) -> Tensor:
    """(T, 2·E) as (T, E)."""
    x, gate = gated.chunk(2, dim=1)
    padded = torch.cat((torch.zeros(TAPS - 1, CHANNELS, dtype=x.dtype), x))
    taps = own["filter.weight"]
    x = torch.stack([(padded[t : t + TAPS] * taps.T).sum(0) for t in range(len(x))]) + own["filter.bias"]
    x = x * x.sigmoid()
    if "step.bias" in own:
        raw = own["step.bias"].expand(len(x), -1)
        sides = own["in_out.bias"].reshape(1, CHANNELS, 2 * STATES).expand(len(x), -1, -1)
    else:
        raw = x @ own["step_down.weight"].T @ own["step_up.weight"].T + own["step_up.bias"]
        sides = (x @ own["in_out.weight"].T)[:, None].expand(-1, CHANNELS, -1)
    step = raw.exp().log1p()
    decay = -own["log_decay"].reshape(CHANNELS, STATES).exp()
    state, out = torch.zeros(CHANNELS, STATES, dtype=x.dtype), []
    for t in range(len(x)):
        into, of = sides[t].chunk(2, dim=1)
        state = (step[t, :, None] * decay).exp() * state + (step[t] * x[t])[:, None] * into
        out.append((state * of).sum(1) + own["skip"] * x[t])
    return torch.stack(out) * gate * gate.sigmoid()


def fixed_scan(gated: Tensor, own: dict[str, Tensor]) -> Tensor:
    """The library's convolution and scan where nothing depends on the token."""
    x, gate = gated.T.chunk(2)
    x = F.silu(F.conv1d(F.pad(x[None], (TAPS - 1, 0)), own["filter.weight"][:, None], own["filter.bias"], groups=CHANNELS))
    decay = -own["log_decay"].reshape(CHANNELS, STATES).exp()
    sides = own["in_out.bias"].reshape(CHANNELS, 2, STATES)
    out = []
    for channel in range(CHANNELS):
        alone = slice(channel, channel + 1)
        into, of = (sides[channel, side][None, :, None].expand(1, STATES, x.shape[2]) for side in (0, 1))
        out.append(
            mamba_selective_scan(
                x[:, alone], torch.zeros_like(x[:, alone]), decay[alone], into, of, own["skip"][alone],
                z=gate[None, alone], delta_bias=own["step.bias"][alone], delta_softplus=True,
            )
        )
    return torch.cat(out, dim=1)[0].T


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=default_folder(__file__))
    arguments = parser.parse_args()
    setup()
    torch.Tensor.float = torch.Tensor.double
    generator = torch.Generator().manual_seed(20231201)
    tensors: dict[str, Tensor] = {}
    for case in ("mamba", "both", "s4d"):
        weights = {
            "in.weight": random(generator, 2 * CHANNELS, WIDTH, scale=WIDTH**-0.5),
            "out.weight": random(generator, WIDTH, CHANNELS, scale=CHANNELS**-0.5),
        }
        weights |= direction(generator)
        if case == "s4d":
            weights = {name: x for name, x in weights.items() if not name.startswith(("step_", "in_out"))}
            weights["step.bias"] = random(generator, CHANNELS, mean=-1.0)
            weights["in_out.bias"] = random(generator, CHANNELS * 2 * STATES)
        second = direction(generator) if case == "both" else {}
        weights |= {f"backward.{name}": x for name, x in second.items()}
        x = random(generator, LENGTH, WIDTH).requires_grad_()
        output_gradient = random(generator, LENGTH, WIDTH)
        leaves = {name: value.clone().requires_grad_() for name, value in weights.items()}
        if case == "s4d":
            output = fixed_scan(x @ leaves["in.weight"].T, leaves) @ leaves["out.weight"].T
            output.backward(output_gradient)
            found = {name: leaf.grad for name, leaf in leaves.items()}
        else:
            modules = [mixer() for _ in range(2 if case == "both" else 1)]
            into = nn.Linear(WIDTH, 2 * CHANNELS, bias=False).double()
            into.weight.data = weights["in.weight"].clone()
            out = nn.Linear(CHANNELS, WIDTH, bias=False).double()
            out.weight.data = weights["out.weight"].clone()
            for module, own in zip(modules, (weights, second)):
                put(module, own)
                module.in_proj, module.out_proj = into, nn.Identity()
            sums = modules[0](x[None])[0]
            if second:
                sums = sums + modules[1](x.flip(0)[None])[0].flip(0)
            output = out(sums)
            output.backward(output_gradient)
            found = {"in.weight": into.weight.grad, "out.weight": out.weight.grad} | gradients(modules[0])
            if second:
                found |= {f"backward.{name}": x for name, x in gradients(modules[1]).items()}
        again, leaves = x.detach().clone().requires_grad_(), {n: w.clone().requires_grad_() for n, w in weights.items()}
        gated = again @ leaves["in.weight"].T
        sums = recurrence(gated, leaves)
        if second:
            own = {name.removeprefix("backward."): leaf for name, leaf in leaves.items() if name.startswith("backward.")}
            sums = sums + recurrence(gated.flip(0), own).flip(0)
        expected = sums @ leaves["out.weight"].T
        expected.backward(output_gradient)
        errors = [relative_error(output.detach(), expected.detach()), relative_error(x.grad, again.grad)]
        errors += [relative_error(found[name], leaf.grad) for name, leaf in leaves.items()]
        print(f"{case}: transformers is within {max(errors):.1e} relative of the recurrence")
        assert max(errors) < TOLERANCE, case
        stored = weights | {"input": x.detach(), "output_gradient": output_gradient, "output": output.detach()}
        stored |= {"grad.input": x.grad} | {f"grad.{name}": grad for name, grad in found.items()}
        tensors |= {f"{case}.{name}": tensor.contiguous() for name, tensor in stored.items()}
    save(
        arguments.out / "state-space.safetensors", __file__, tensors, width=WIDTH, expand=EXPAND, states=STATES,
        step_rank=RANK, convolution=TAPS, transformers=transformers.__version__,
    )


if __name__ == "__main__":
    main()
