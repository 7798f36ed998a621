#!/usr/bin/env python3
"""`frugal grad` beside PyTorch on tiny decoders with random weights, from folders of the hub's layout.

usage: decoder_beside_torch.py [--frugal build/release/bin/frugal] [NAME ...]
       decoder_beside_torch.py --write FOLDER [NAME ...]      where PyTorch is
       decoder_beside_torch.py --compare FOLDER [--frugal ...] [NAME ...]    where frugal is

Each NAME is a configuration below: a config.json of a family of models. The reference is written in
PyTorch from the published descriptions of the families. It reads the keys of config.json, and has
nothing of Hugging Face's library. The weights are random, in two shards with an index; of one NAME
they are bf16. Prints for the logits, and for the gradients of all parameters together, the error of
PyTorch's f32 and of ours, relative to PyTorch in f64, and the error of ours in f64. Exit status 1
if ours is more than twice as far as PyTorch's f32 plus 1e-7, or in f64 further than 1e-11.
Needs python3-torch and python3-numpy (to compare: numpy alone).
"""
import argparse
import json
import math
import pathlib
import struct
import subprocess
import sys
import tempfile

import numpy

VOCAB, LAYERS, TOKENS, BATCH = 61, 4, 24, 2


def config(model_type, **more):
    base = {"model_type": model_type, "vocab_size": VOCAB, "hidden_size": 32,
            "intermediate_size": 48, "num_hidden_layers": LAYERS, "num_attention_heads": 4,
            "num_key_value_heads": 2, "max_position_embeddings": 64, "rms_norm_eps": 1e-5,
            "torch_dtype": "float32", "use_cache": True, "bos_token_id": 1, "eos_token_id": [2, 3]}
    return {**base, **more}


CONFIGS = {
    "llama2": config("llama", num_key_value_heads=4, hidden_act="silu", rope_theta=10000.0),
    "llama3": config("llama", rope_theta=500000.0, head_dim=8, rope_scaling={
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 16}),
    "llama3_v5": config("llama", attention_bias=True, mlp_bias=True, dtype="float32", rope_parameters={
        "rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0,
        "high_freq_factor": 4.0, "original_max_position_embeddings": 16}),
    "llama_yarn": config("llama", rope_scaling={
        "type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8}),
    "llama_linear": config("llama", rope_scaling={"type": "linear", "factor": 2.5}),
    "llama_dynamic": config("llama", max_position_embeddings=16,
                            rope_scaling={"type": "dynamic", "factor": 2.0}),
    "tied_bf16": config("llama", tie_word_embeddings=True, torch_dtype="bfloat16"),
    "mistral": config("mistral", sliding_window=7, head_dim=12),
    "qwen2": config("qwen2", use_sliding_window=True, sliding_window=5, max_window_layers=2),
    "qwen3": config("qwen3", head_dim=16, attention_bias=False, rope_theta=1e6),
    "smollm3": config("smollm3", no_rope_layers=[1, 1, 0, 1], tie_word_embeddings=True),
    "gemma2": config("gemma2", head_dim=16, sliding_window=6, query_pre_attn_scalar=20,
                     attn_logit_softcapping=1.5, final_logit_softcapping=2.0,
                     hidden_activation="gelu_pytorch_tanh"),
    "gemma3": config("gemma3_text", head_dim=10, sliding_window=5, query_pre_attn_scalar=10,
                     rope_theta=1e6, rope_local_base_freq=1e4, sliding_window_pattern=3,
                     rope_scaling={"rope_type": "linear", "factor": 8.0}),
}

# ---- safetensors
DTYPES = {"F32": numpy.float32, "F64": numpy.float64, "I64": numpy.int64}
NAMES = {numpy.dtype(v): k for k, v in DTYPES.items()}


def write(path, tensors, bf16=()):
    header, at, parts = {"__metadata__": {"format": "pt"}}, 0, []
    for name, values in tensors.items():
        values = numpy.ascontiguousarray(values)
        kind = NAMES[values.dtype]
        data = values.tobytes()
        if name in bf16:  # the values have only these bits
            kind, data = "BF16", (values.view(numpy.uint32) >> 16).astype(numpy.uint16).tobytes()
        header[name] = {"dtype": kind, "shape": list(values.shape), "data_offsets": [at, at + len(data)]}
        at += len(data)
        parts.append(data)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(parts))


def read(path):
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    tensors = {}
    for name, entry in json.loads(data[8:8 + length]).items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            values = numpy.frombuffer(data[8 + length + begin:8 + length + end], DTYPES[entry["dtype"]])
            tensors[name] = values.reshape(entry["shape"]).astype(numpy.float64)
    return tensors


# ---- the reference
def head_size(c):
    return c.get("head_dim") or c["hidden_size"] // c["num_attention_heads"]


def is_gemma(c):
    return c["model_type"].startswith("gemma")


def weights_of(c, rng):
    width, inner = c["hidden_size"], c["intermediate_size"]
    d, heads, shared = head_size(c), c["num_attention_heads"], c["num_key_value_heads"]
    kind, weights = c["model_type"], {}

    def matrix(name, out, into, bias=False):
        weights[name + ".weight"] = rng.normal(0, into ** -0.5, (out, into))
        if bias:
            weights[name + ".bias"] = rng.normal(0, 0.3, out)

    def norm(name, size):
        weights[name + ".weight"] = rng.normal(0 if is_gemma(c) else 1, 0.3, size)

    weights["model.embed_tokens.weight"] = rng.normal(0, 1, (VOCAB, width))
    bias, qkv = c.get("attention_bias", False), c.get("attention_bias", False) or kind == "qwen2"
    for i in range(LAYERS):
        at = f"model.layers.{i}."
        for name in ["input_layernorm", "post_attention_layernorm"] + (
                ["pre_feedforward_layernorm", "post_feedforward_layernorm"] if is_gemma(c) else []):
            norm(at + name, width)
        matrix(at + "self_attn.q_proj", heads * d, width, qkv)
        matrix(at + "self_attn.k_proj", shared * d, width, qkv)
        matrix(at + "self_attn.v_proj", shared * d, width, qkv)
        matrix(at + "self_attn.o_proj", width, heads * d, bias)
        if kind in ("qwen3", "gemma3_text"):
            norm(at + "self_attn.q_norm", d)
            norm(at + "self_attn.k_norm", d)
        matrix(at + "mlp.gate_proj", inner, width, c.get("mlp_bias", False))
        matrix(at + "mlp.up_proj", inner, width, c.get("mlp_bias", False))
        matrix(at + "mlp.down_proj", width, inner, c.get("mlp_bias", False))
    norm("model.norm", width)
    if not tied(c):
        matrix("lm_head", VOCAB, width)
    return {k: v.astype(numpy.float32) for k, v in weights.items()}


def tied(c):
    return c.get("tie_word_embeddings", is_gemma(c) or c["model_type"] == "smollm3")


def frequencies(c, tokens, sliding):
    """The angles of a step of the position, and the factor of sines and cosines."""
    d, half = head_size(c), head_size(c) // 2
    rope = c.get("rope_parameters") or c.get("rope_scaling") or {}
    usual = 2e6 if c["model_type"] == "smollm3" else 1e4
    base = rope.get("rope_theta", c.get("rope_theta", usual))
    kind = rope.get("rope_type", rope.get("type", "default"))
    if c["model_type"] == "gemma3_text" and sliding:
        base, kind = c["rope_local_base_freq"], "default"
    gain, f = 1.0, rope.get("factor", 1.0)
    if kind == "dynamic":
        length, most = max(tokens, c["max_position_embeddings"]), c["max_position_embeddings"]
        base *= (f * length / most - (f - 1)) ** (d / (d - 2))
    own = [base ** (-2 * i / d) for i in range(half)]
    if kind == "linear":
        own = [w / f for w in own]
    if kind == "llama3":
        first, low, high = (rope["original_max_position_embeddings"], rope["low_freq_factor"],
                            rope["high_freq_factor"])
        for i, w in enumerate(own):
            length = 2 * math.pi / w
            if length > first / low:
                own[i] = w / f
            elif length >= first / high:
                s = (first / length - low) / (high - low)
                own[i] = (1 - s) * w / f + s * w
    if kind == "yarn":
        first = rope["original_max_position_embeddings"]

        def place(turns):
            return d * math.log(first / (turns * 2 * math.pi)) / (2 * math.log(base))

        low, high = max(math.floor(place(32)), 0), min(math.ceil(place(1)), d - 1)
        if low == high:
            high += 0.001
        for i, w in enumerate(own):
            ramp = min(max((i - low) / (high - low), 0), 1)
            own[i] = w / f * ramp + w * (1 - ramp)
        gain = 0.1 * math.log(f) + 1
    return own, gain


def windows(c):
    kind, window = c["model_type"], c.get("sliding_window")
    if kind == "mistral":
        return [window] * LAYERS
    if kind == "qwen2" and c.get("use_sliding_window"):
        return [window if i >= c["max_window_layers"] else None for i in range(LAYERS)]
    if kind == "gemma2":
        return [window if i % 2 == 0 else None for i in range(LAYERS)]
    if kind == "gemma3_text":
        return [window if (i + 1) % c["sliding_window_pattern"] else None for i in range(LAYERS)]
    return [None] * LAYERS


def logits_of(torch, c, w, ids):
    d, heads, shared = head_size(c), c["num_attention_heads"], c["num_key_value_heads"]
    n, t = ids.shape
    dtype = w["model.norm.weight"].dtype

    def norm(x, name):
        weight = w[name + ".weight"] + (1 if is_gemma(c) else 0)
        return weight * x * torch.rsqrt((x * x).mean(-1, keepdim=True) + c["rms_norm_eps"])

    def product(x, name):
        return torch.nn.functional.linear(x, w[name + ".weight"], w.get(name + ".bias"))

    def turned(x, sliding):  # [n, t, heads, d]
        speeds, gain = frequencies(c, t, sliding)
        angles = torch.arange(t, dtype=torch.float64)[:, None] * torch.tensor(speeds, dtype=torch.float64)
        cos, sin = ((gain * f(angles)).to(dtype)[None, :, None] for f in (torch.cos, torch.sin))
        a, b = x[..., :d // 2], x[..., d // 2:]
        return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)

    x = w["model.embed_tokens.weight"][ids]
    if is_gemma(c):
        x = x * c["hidden_size"] ** 0.5
    place = torch.arange(t)
    behind = place[:, None] - place[None, :]
    for i, window in enumerate(windows(c)):
        at = f"model.layers.{i}."
        y = norm(x, at + "input_layernorm")
        q = product(y, at + "self_attn.q_proj").view(n, t, heads, d)
        k = product(y, at + "self_attn.k_proj").view(n, t, shared, d)
        v = product(y, at + "self_attn.v_proj").view(n, t, shared, d)
        if at + "self_attn.q_norm.weight" in w:
            q, k = norm(q, at + "self_attn.q_norm"), norm(k, at + "self_attn.k_norm")
        if c.get("no_rope_layers", [1] * LAYERS)[i]:
            q, k = turned(q, window is not None), turned(k, window is not None)
        k, v = (z.repeat_interleave(heads // shared, 2) for z in (k, v))
        scale = c.get("query_pre_attn_scalar", d) ** -0.5
        scores = torch.einsum("nthd,nshd->nhts", q, k) * scale
        cap = c.get("attn_logit_softcapping")
        if cap:
            scores = cap * torch.tanh(scores / cap)
        hidden = behind < 0
        if window is not None:
            hidden = hidden | (behind >= window)
        shares = torch.softmax(scores.masked_fill(hidden, float("-inf")), -1)
        y = torch.einsum("nhts,nshd->nthd", shares, v).reshape(n, t, heads * d)
        y = product(y, at + "self_attn.o_proj")
        if is_gemma(c):
            y = norm(y, at + "post_attention_layernorm")
        x = x + y
        y = norm(x, at + ("pre_feedforward_layernorm" if is_gemma(c) else "post_attention_layernorm"))
        gate = product(y, at + "mlp.gate_proj")
        act = torch.nn.functional.gelu(gate, approximate="tanh") if is_gemma(c) else (
            torch.nn.functional.silu(gate))
        y = product(act * product(y, at + "mlp.up_proj"), at + "mlp.down_proj")
        if is_gemma(c):
            y = norm(y, at + "post_feedforward_layernorm")
        x = x + y
    x = norm(x, "model.norm")
    z = torch.nn.functional.linear(x, w["model.embed_tokens.weight" if tied(c) else "lm_head.weight"])
    cap = c.get("final_logit_softcapping")
    return cap * torch.tanh(z / cap) if cap else z


def made(torch, c, weights, ids, target, dtype):
    w = {k: torch.tensor(v).to(dtype).requires_grad_() for k, v in weights.items()}
    logits = logits_of(torch, c, w, torch.tensor(ids))
    loss = torch.nn.functional.cross_entropy(logits.view(-1, VOCAB), torch.tensor(target).view(-1))
    loss.backward()
    out = {"grad/" + k: v.grad.double().numpy() for k, v in w.items()}
    out["output"] = logits.detach().double().numpy()
    return out


# ---- the parts
def write_case(folder, name):
    import torch
    c, rng = CONFIGS[name], numpy.random.default_rng(7)
    weights = weights_of(c, rng)
    narrow = set(weights) if c["torch_dtype"] == "bfloat16" else set()
    for k in narrow:  # the bits that bf16 has
        weights[k] = (weights[k].view(numpy.uint32) & 0xFFFF0000).view(numpy.float32)
    ids = rng.integers(0, VOCAB, (BATCH, TOKENS))
    target = rng.integers(0, VOCAB, (BATCH, TOKENS))
    target[rng.random(target.shape) < 0.2] = -100
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(c))
    names = list(weights)
    shards = {"model-00001-of-00002.safetensors": names[:len(names) // 2],
              "model-00002-of-00002.safetensors": names[len(names) // 2:]}
    for file, some in shards.items():
        write(folder / file, {k: weights[k] for k in some}, narrow)
    (folder / "model.safetensors.index.json").write_text(json.dumps({
        "metadata": {"total_size": sum(v.nbytes for v in weights.values())},
        "weight_map": {k: file for file, some in shards.items() for k in some}}))
    write(folder / "batch.in", {"input_ids": ids, "target": target})
    for kind, dtype in (("f64", torch.float64), ("f32", torch.float32)):
        write(folder / f"torch.{kind}", made(torch, c, weights, ids, target, dtype))


def error(found, expected, names):
    difference = sum(((found[n] - expected[n]) ** 2).sum() for n in names)
    return (difference / sum((expected[n] ** 2).sum() for n in names)) ** 0.5


def compare_case(folder, name, frugal):
    config = {"model": {"weights": str(folder)}, "compression": {"level": "L0"}}
    (folder / "run.in").write_text(json.dumps(config))
    ours = {}
    for kind in ("f64", "f32"):
        command = [frugal, "grad", folder / "run.in", "--weights", folder, "--batch",
                   folder / "batch.in", "--out", folder / f"ours.{kind}"]
        subprocess.run(command + (["--f64"] if kind == "f64" else []), check=True,
                       stdout=subprocess.DEVNULL)
        ours[kind] = read(folder / f"ours.{kind}")
    exact, plain = read(folder / "torch.f64"), read(folder / "torch.f32")
    grads = [n for n in exact if n.startswith("grad/")]
    missing = set(grads) ^ {n for n in ours["f32"] if n.startswith("grad/")}
    assert not missing, missing
    good, text = True, f"{name:14}"
    for what, names in (("logits", ["output"]), (f"{len(grads)} gradients", grads)):
        torchs, f32, f64 = (error(x, exact, names) for x in (plain, ours["f32"], ours["f64"]))
        good = good and f32 <= 2 * torchs + 1e-7 and f64 <= 1e-11
        text += f"  {what}: PyTorch {torchs:.1e}, ours {f32:.1e}, in f64 {f64:.1e}"
    print(text + ("" if good else "  TOO FAR"), flush=True)
    return good


def main():
    here = pathlib.Path(__file__).resolve().parent
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", help="default: all of " + ", ".join(CONFIGS))
    parser.add_argument("--frugal", default=str(here.parent / "build/release/bin/frugal"))
    parser.add_argument("--write", type=pathlib.Path)
    parser.add_argument("--compare", type=pathlib.Path)
    args = parser.parse_args()
    names = args.names or list(CONFIGS)
    if args.write:
        for name in names:
            write_case(args.write / name, name)
    elif args.compare:
        return not all([compare_case(args.compare / name, name, args.frugal) for name in names])
    else:
        with tempfile.TemporaryDirectory() as folder:
            for name in names:
                write_case(pathlib.Path(folder) / name, name)
            return not all([compare_case(pathlib.Path(folder) / name, name, args.frugal) for name in names])
    return 0


if __name__ == "__main__":
    sys.exit(main())
