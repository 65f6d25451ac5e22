"""Writes a training checkpoint as a `kimi_k3` folder: config, BF16 weights, tokenizer, chat template.

    python export.py --run run --to ../../demo/model [--reference k3_reference.py]

With --reference the folder is read back by the plain reference implementation, which insists that
every tensor is used, and its logits are compared with the training model on the rounded weights.
The folder is replaced in one step.
"""
import argparse
import importlib.util
import json
import os
import shutil

import torch
from safetensors.torch import save_file

from model import DemoModel, ModelConfig
from tokenizer import Tokenizer

FLOAT32 = ("conv1d.weight", "A_log", "dt_bias", "o_norm.weight", "e_score_correction_bias")
A_LOG_LENGTH = 128      # the published layout pads the heads' entries with zeros
TEMPLATE = ("{%- for message in messages -%}<|im_{{ message['role'] }}|>{{ message['content'] }}<|im_end|>{%- endfor -%}"
            "{%- if add_generation_prompt -%}<|im_assistant|>{%- endif -%}")
# Fields which the published configuration carries without any effect on inference.
BOILERPLATE = {
    "_name_or_path": "", "add_cross_attention": False, "bad_words_ids": None, "begin_suppress_tokens": None,
    "chunk_size_feed_forward": 0, "cross_attention_hidden_size": None, "decoder_start_token_id": None,
    "diversity_penalty": 0.0, "do_sample": False, "early_stopping": False, "encoder_no_repeat_ngram_size": 0,
    "exponential_decay_length_penalty": None, "finetuning_task": None, "forced_bos_token_id": None,
    "forced_eos_token_id": None, "id2label": {"0": "LABEL_0", "1": "LABEL_1"}, "is_decoder": False,
    "is_encoder_decoder": False, "label2id": {"LABEL_0": 0, "LABEL_1": 1}, "length_penalty": 1.0, "max_length": 20,
    "min_length": 0, "no_repeat_ngram_size": 0, "num_beam_groups": 1, "num_beams": 1, "num_return_sequences": 1,
    "output_attentions": False, "output_hidden_states": False, "output_scores": False, "prefix": None,
    "problem_type": None, "pruned_heads": {}, "remove_invalid_values": False, "repetition_penalty": 1.0,
    "return_dict": True, "return_dict_in_generate": False, "sep_token_id": None, "suppress_tokens": None,
    "task_specific_params": None, "temperature": 1.0, "tf_legacy_loss": False, "tie_encoder_decoder": False,
    "tokenizer_class": None, "top_k": 50, "top_p": 1.0, "torchscript": False, "typical_p": 1.0, "use_bfloat16": False,
}


def config_json(c, tokenizer):
    ids = {"bos_token_id": tokenizer.special["[BOS]"], "eos_token_id": tokenizer.special["<|im_end|>"],
           "pad_token_id": tokenizer.special["[PAD]"]}
    full = list(c.full_attn_layers)
    text = BOILERPLATE | ids | {
        "architectures": ["KimiLinearForCausalLM"], "model_type": "kimi_linear", "dtype": "bfloat16",
        "auto_map": {"AutoConfig": "configuration_kimi_k3.KimiLinearConfig",
                     "AutoModel": "modeling_kimi_linear.KimiLinearModel",
                     "AutoModelForCausalLM": "modeling_kimi_linear.KimiLinearForCausalLM"},
        "activation_situ_beta": c.situ_beta, "activation_situ_linear_beta": c.situ_linear_beta,
        "attn_res_block_size": c.attn_res_block_size, "first_k_dense_replace": 1, "hidden_act": "situ",
        "hidden_size": c.hidden_size, "initializer_range": 0.02, "intermediate_size": c.intermediate_size,
        "kv_lora_rank": c.kv_lora_rank, "latent_moe_use_norm": True,
        "linear_attn_config": {
            "full_attn_layers": full, "gate_lower_bound": c.gate_lower_bound, "head_dim": c.kda_head_dim,
            "kda_layers": [i + 1 for i in range(c.num_layers) if i + 1 not in full], "num_heads": c.kda_heads,
            "short_conv_kernel_size": c.conv_taps, "use_full_rank_gate": True},
        "max_position_embeddings": 1048576, "mla_use_nope": True, "mla_use_output_gate": True,
        "moe_intermediate_size": c.moe_intermediate_size, "moe_layer_freq": 1, "moe_renormalize": True,
        "moe_router_activation_func": "sigmoid", "num_attention_heads": c.heads, "num_expert_group": 1,
        "num_experts": c.experts, "num_experts_per_token": c.experts_per_token, "num_hidden_layers": c.num_layers,
        "num_key_value_heads": c.heads, "num_nextn_predict_layers": 0, "num_shared_experts": c.shared_experts,
        "q_lora_rank": c.q_lora_rank, "qk_nope_head_dim": c.nope_dim, "qk_rope_head_dim": c.rope_dim,
        "rms_norm_eps": c.eps, "routed_expert_hidden_size": c.latent_size, "routed_scaling_factor": 1.0,
        "tie_word_embeddings": False, "topk_group": 1, "topk_method": "noaux_tc", "transformers_version": "4.56.2",
        "use_cache": True, "use_grouped_topk": True, "v_head_dim": c.v_dim, "vocab_size": c.vocab_size,
        "index_n_heads": c.index_heads, "index_head_dim": c.index_dim, "index_topk": c.index_topk,
        "indexer_types": ["full"] * c.num_layers,
    }
    return ids | {
        "architectures": ["KimiK3ForConditionalGeneration"], "model_type": "kimi_k3", "dtype": "bfloat16",
        "ignore_index": -100,
        "auto_map": {"AutoConfig": "configuration_kimi_k3.KimiK3Config",
                     "AutoModel": "modeling_kimi_k3.KimiK3ForConditionalGeneration",
                     "AutoModelForCausalLM": "modeling_kimi_k3.KimiK3ForConditionalGeneration"},
        "image_placeholder": "<|kimi_image_placeholder|>", "media_placeholder_token_id": c.vocab_size - 3,
        "tie_word_embeddings": False, "text_config": text,
    }


def checkpoint_tensors(state):
    """Checkpoint names and dtypes of a training state."""
    out = {}
    for name, x in state.items():
        full = "language_model." + name
        if ".experts_w" in name:
            base, part = full.rsplit(".experts_", 1)
            for e in range(len(x)):
                out[f"{base}.experts.{e}.{part}.weight"] = x[e].to(torch.bfloat16).clone()
            continue
        if name.endswith("A_log"):
            x = torch.cat((x, x.new_zeros(A_LOG_LENGTH - len(x))))
        out[full] = x.clone() if name.endswith(FLOAT32) else x.to(torch.bfloat16)
    return out


def rounded_state(state):
    return {k: v if k.endswith(FLOAT32) else v.to(torch.bfloat16).to(v.dtype) for k, v in state.items()}


def load_run(folder):
    """(model on BF16-rounded weights, tokenizer, the saved record)"""
    saved = torch.load(os.path.join(folder, "checkpoint.pt"), weights_only=False)
    model = DemoModel(ModelConfig(**saved["config"]))
    model.load_state_dict(rounded_state(saved["model"]))
    return model.eval(), Tokenizer.load(folder), saved


def load_folder(folder):
    """The exported folder as a training model: (model, tokenizer)."""
    from safetensors.torch import load_file
    tokenizer = Tokenizer.load(folder)
    with open(os.path.join(folder, "config.json")) as f:
        t = json.load(f)["text_config"]
    lin = t["linear_attn_config"]
    c = ModelConfig(
        vocab_size=t["vocab_size"], hidden_size=t["hidden_size"], num_layers=t["num_hidden_layers"],
        full_attn_layers=tuple(lin["full_attn_layers"]), attn_res_block_size=t["attn_res_block_size"],
        kda_heads=lin["num_heads"], kda_head_dim=lin["head_dim"], conv_taps=lin["short_conv_kernel_size"],
        gate_lower_bound=lin["gate_lower_bound"], heads=t["num_attention_heads"], q_lora_rank=t["q_lora_rank"],
        kv_lora_rank=t["kv_lora_rank"], nope_dim=t["qk_nope_head_dim"], rope_dim=t["qk_rope_head_dim"],
        v_dim=t["v_head_dim"], index_heads=t["index_n_heads"], index_dim=t["index_head_dim"],
        index_topk=t["index_topk"], intermediate_size=t["intermediate_size"], experts=t["num_experts"],
        experts_per_token=t["num_experts_per_token"], moe_intermediate_size=t["moe_intermediate_size"],
        latent_size=t["routed_expert_hidden_size"], shared_experts=t["num_shared_experts"], eps=t["rms_norm_eps"],
        situ_beta=t["activation_situ_beta"], situ_linear_beta=t["activation_situ_linear_beta"])
    model = DemoModel(c)
    tensors = {k.removeprefix("language_model."): v.float() for k, v in load_file(os.path.join(folder, "model.safetensors")).items()}
    state = {}
    for name in model.state_dict():
        if ".experts_w" in name:
            base, part = name.rsplit(".experts_", 1)
            state[name] = torch.stack([tensors[f"{base}.experts.{e}.{part}.weight"] for e in range(c.experts)])
        else:
            state[name] = tensors[name][: c.kda_heads] if name.endswith("A_log") else tensors[name]
    model.load_state_dict(state)
    return model.eval(), tokenizer


def write(folder, model, tokenizer):
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)

    def dump(name, value):
        with open(os.path.join(folder, name), "w") as f:
            json.dump(value, f, indent=2)
            f.write("\n")

    c = model.config
    dump("config.json", config_json(c, tokenizer))
    dump("generation_config.json", {
        "bos_token_id": tokenizer.special["[BOS]"],
        "eos_token_id": [tokenizer.special["<|im_end|>"], tokenizer.special["[EOS]"]],
        "pad_token_id": tokenizer.special["[PAD]"],
        "do_sample": True, "temperature": 0.7, "top_p": 0.95, "max_new_tokens": 256,
    })
    tokenizer.save(folder)
    with open(os.path.join(folder, "chat_template.jinja"), "w") as f:
        f.write(TEMPLATE)
    save_file(checkpoint_tensors(model.state_dict()), os.path.join(folder, "model.safetensors"), metadata={"format": "pt"})
    os.chmod(os.path.join(folder, "model.safetensors"), 0o644)


def load_reference(path):
    spec = importlib.util.spec_from_file_location("k3_reference", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@torch.no_grad()
def compare(folder, model, tokenizer, reference, text):
    """Largest difference of the logits, relative to the largest logit."""
    ref = load_reference(reference).K3Reference(folder)
    worst = 0.0
    for n in (1, 63, 100, 333):
        ids = torch.tensor(tokenizer.encode(text)[:n])
        a, b = ref.forward(ids)["logits"], model.padded_logits(ids[None])[0]
        worst = max(worst, ((a - b).abs().max() / a.abs().max()).item())
    return worst


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--run", default="run")
    p.add_argument("--to", required=True)
    p.add_argument("--reference")
    p.add_argument("--text", default=None)
    args = p.parse_args()
    model, tokenizer, saved = load_run(args.run)
    target = os.path.abspath(args.to)
    work = target + ".tmp"
    write(work, model, tokenizer)
    if args.reference:
        from train import TEXT
        with open(args.text or TEXT) as f:
            text = f.read()[-4000:]
        diff = compare(work, model, tokenizer, args.reference, text)
        print(f"largest relative difference to the reference: {diff:.2e}")
        assert diff < 1e-4
    old = target + ".old"
    shutil.rmtree(old, ignore_errors=True)
    if os.path.exists(target):
        os.rename(target, old)
    os.rename(work, target)
    shutil.rmtree(old, ignore_errors=True)
    print("exported step", saved["step"], "tokens", saved["tokens"], "minutes", round(saved["seconds"] / 60, 1))


if __name__ == "__main__":
    main()
