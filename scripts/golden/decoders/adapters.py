"""Makes folders of adapters as PEFT saves them, of the golden Llama: plain, scaled by the root of the rank, and DoRA.

`expected.safetensors` has from the token ids of the Llama's own `expected.safetensors` the logits, the mean loss of each
next token, and the gradient of every trained tensor under the name that PEFT saves it by. The reference runs in float64
from the saved weights and is rounded once, on saving.
"""

import argparse
import json
from pathlib import Path

import peft
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from ..common import ROOT, save, setup

LAYERS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
VARIANTS = {
    "peft-lora": LoraConfig(r=4, lora_alpha=6, target_modules=LAYERS, task_type="CAUSAL_LM"),
    # No adapters of keys, other ranks and scales of some layers, and a head that is trained as a whole.
    "peft-rslora": LoraConfig(
        r=4, lora_alpha=6, use_rslora=True, target_modules=["q_proj", "v_proj", "down_proj"], task_type="CAUSAL_LM",
        rank_pattern={"layers.0.self_attn.v_proj": 2}, alpha_pattern={"layers.1.mlp.down_proj": 3},
        modules_to_save=["lm_head"],
    ),
    "peft-dora": LoraConfig(r=3, lora_alpha=6, use_dora=True, target_modules=LAYERS, task_type="CAUSAL_LM"),
}


def saved_name(name: str) -> str:
    """The name by which PEFT saves a parameter of an adapter called `default`."""
    name = name.replace(".modules_to_save.default", "").replace("lora_magnitude_vector.default.weight", "lora_magnitude_vector")
    return name.replace(".default", "")


def write(base: Path, out: Path, config: LoraConfig) -> None:
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    adapted = get_peft_model(model, config)
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in (parameter for parameter in adapted.parameters() if parameter.requires_grad):
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.2)
    adapted.save_pretrained(out)
    (out / "README.md").unlink()
    settings = json.loads((out / "adapter_config.json").read_text())
    settings |= {"base_model_name_or_path": base.name, "target_modules": sorted(settings["target_modules"])}
    (out / "adapter_config.json").write_text(json.dumps(settings, indent=2) + "\n")
    (out / "adapter_model.safetensors").chmod(0o644)
    wide = PeftModel.from_pretrained(
        AutoModelForCausalLM.from_pretrained(base, dtype=torch.float64), out, is_trainable=True, autocast_adapter_dtype=False
    )
    wide = wide.double().eval()
    inputs = load_file(base / "expected.safetensors")
    rows = inputs["ids"].long().split(inputs["lengths"].tolist())
    longest = max(len(row) for row in rows)
    ids = torch.stack([torch.nn.functional.pad(row, (0, longest - len(row))) for row in rows])
    labels = torch.stack([torch.nn.functional.pad(row, (0, longest - len(row)), value=-100) for row in rows])
    output = wide(ids, labels=labels)
    output.loss.backward()
    logits = torch.cat([output.logits[i, : len(row) - 1] for i, row in enumerate(rows)])
    results = {"logits": logits, "loss": output.loss}
    for name, parameter in wide.named_parameters():
        if parameter.requires_grad:
            results[f"grad.{saved_name(name)}"] = parameter.grad
    results = {name: tensor.detach().clone() for name, tensor in results.items()}
    stored = set(load_file(out / "adapter_model.safetensors"))
    assert {f"grad.{name}" for name in stored} <= set(results), sorted(stored)[:3] + sorted(results)[:3]
    save(out / "expected.safetensors", __file__, results, peft=peft.__version__)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "crates" / "run" / "tests" / "golden")
    out = parser.parse_args().out
    setup()
    for name, config in VARIANTS.items():
        write(out / "llama", out / name, config)


if __name__ == "__main__":
    main()
