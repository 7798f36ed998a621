"""Networks of the program with options that are drawn, and what PyTorch computes for them.

Each is written as a function of the parameters by their names, from the papers' formulas. Those of
torchvision are torchvision's own."""
import math

import torch
from torch.nn import functional as f

try:
    import torchvision
except ImportError:
    torchvision = None


KEEP_ALL = {"dropout": 0, "attention_dropout": 0}


def linear(p, name, x):
    return f.linear(x, p[name + ".weight"], p.get(name + ".bias"))


def norm(p, name, x, eps):
    return f.layer_norm(x, x.shape[-1:], p[name + ".weight"], p[name + ".bias"], eps)


def batch_norm(p, name, x):
    p[name + ".num_batches_tracked"] += 1
    return f.batch_norm(x, p[name + ".running_mean"], p[name + ".running_var"], p[name + ".weight"], p[name + ".bias"], True)


def heads_of(x, heads):
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def attend(q, k, v, hidden, causal):
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    if hidden is not None:
        scores = scores.masked_fill(hidden[:, None, None, :], -math.inf)
    if causal:
        scores = scores.masked_fill(torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1), -math.inf)
    return (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)


def hidden_of(batch):
    return batch["attention_mask"] == 0 if "attention_mask" in batch else None


# ---- He et al. 2016, for small pictures
def cifar_resnet(draw):
    preact = draw.randrange(3) == 0
    blocks, width, kind = draw.randint(1, 2), draw.choice([2, 4, 8]), draw.choice("AB")

    def shortcut(p, name, x, width, stride):
        if stride == 1 and x.shape[1] == width:
            return x
        if kind == "B":
            x = f.conv2d(x, p[name + ".shortcut.0.weight"], stride=stride)
            return x if preact else batch_norm(p, name + ".shortcut.1", x)
        more = width - x.shape[1]
        return f.pad(x[:, :, ::stride, ::stride], (0, 0, 0, 0, more // 2, more - more // 2))

    def forward(p, batch):
        x = f.conv2d(batch["input"], p["conv1.weight"], padding=1)
        if not preact:
            x = batch_norm(p, "bn1", x).relu()
        for stage in range(3):
            for i in range(blocks):
                name, stride = f"layer{stage + 1}.{i}", 2 if stage > 0 and i == 0 else 1
                y = batch_norm(p, name + ".bn1", x).relu() if preact else x
                y = f.conv2d(y, p[name + ".conv1.weight"], stride=stride, padding=1)
                y = batch_norm(p, name + (".bn2" if preact else ".bn1"), y).relu()
                y = f.conv2d(y, p[name + ".conv2.weight"], padding=1)
                side = shortcut(p, name, x, width << stage, stride)
                x = y + side if preact else (batch_norm(p, name + ".bn2", y) + side).relu()
        if preact:
            x = batch_norm(p, "bn", x).relu()
        return linear(p, "linear", x.mean((2, 3)))

    return {"name": "preact_resnet56" if preact else "resnet20", "layers": 6 * blocks + 2, "width": width, "shortcut": kind}, forward


def mlp(draw):
    hidden = [draw.randint(1, 12) for _ in range(draw.randint(0, 3))]

    def forward(p, batch):
        x = batch["input"].flatten(1)
        for i in range(len(hidden)):
            x = linear(p, f"fc{i + 1}", x).relu()
        return linear(p, f"fc{len(hidden) + 1}", x)

    return {"name": "mlp", "hidden": hidden}, forward


def of_torchvision(make):
    """Runs torchvision's network on the parameters, and leaves its statistics in them."""
    def forward(p, batch):
        network = make()
        with torch.no_grad():
            for name, buffer in network.named_buffers():
                buffer.copy_(p[name])
        y = torch.nn.utils.stateless.functional_call(network, {n: t for n, t in p.items() if t.is_floating_point() and t.requires_grad},
                                                     batch["input"])
        for name, buffer in network.named_buffers():
            p[name] = buffer
        return y
    return forward


def vit(draw, classes, side):
    heads = draw.randint(1, 3)
    width, layers, wide = heads * draw.choice([2, 4]), draw.randint(1, 2), draw.randint(2, 9)
    return ({"name": draw.choice(["vit_b_16", "vit_l_16"]), "heads": heads, "width": width, "layers": layers, "feed_forward": wide},
            of_torchvision(lambda: torchvision.models.VisionTransformer(side, 16, layers, heads, width, wide, num_classes=classes)))


# ---- Devlin et al. 2019
def bert(draw):
    heads, layers = draw.randint(1, 3), draw.randint(1, 2)
    width, wide = heads * draw.choice([2, 4]), draw.randint(2, 9)

    def forward(p, batch):
        ids, name = batch["input_ids"], "bert.embeddings."
        # The token of padding, 0, gets no gradient.
        x = f.embedding(ids, p[name + "word_embeddings.weight"], padding_idx=0) + p[name + "position_embeddings.weight"][:ids.shape[1]] + \
            p[name + "token_type_embeddings.weight"][batch.get("token_type_ids", torch.zeros_like(ids))]
        x = norm(p, name + "LayerNorm", x, 1e-12)
        for i in range(layers):
            name = f"bert.encoder.layer.{i}."
            q, k, v = (heads_of(linear(p, name + "attention.self." + part, x), heads) for part in ("query", "key", "value"))
            y = linear(p, name + "attention.output.dense", attend(q, k, v, hidden_of(batch), False))
            x = norm(p, name + "attention.output.LayerNorm", x + y, 1e-12)
            y = linear(p, name + "output.dense", f.gelu(linear(p, name + "intermediate.dense", x)))
            x = norm(p, name + "output.LayerNorm", x + y, 1e-12)
        return linear(p, "classifier", linear(p, "bert.pooler.dense", x[:, 0]).tanh())

    return {"name": "bert_tiny", "heads": heads, "width": width, "layers": layers, "feed_forward": wide, **KEEP_ALL}, forward


# ---- Radford et al. 2019; its weights are [in, out]
def gpt2(draw):
    heads, layers = draw.randint(1, 3), draw.randint(1, 2)
    width, wide = heads * draw.choice([2, 4]), draw.randint(2, 9)

    def dense(p, name, x):
        return x @ p[name + ".weight"] + p[name + ".bias"]

    def forward(p, batch):
        ids = batch["input_ids"]
        x = p["transformer.wte.weight"][ids] + p["transformer.wpe.weight"][:ids.shape[1]]
        for i in range(layers):
            name = f"transformer.h.{i}."
            parts = dense(p, name + "attn.c_attn", norm(p, name + "ln_1", x, 1e-5)).chunk(3, -1)
            q, k, v = (heads_of(part, heads) for part in parts)
            x = x + dense(p, name + "attn.c_proj", attend(q, k, v, hidden_of(batch), True))
            y = dense(p, name + "mlp.c_fc", norm(p, name + "ln_2", x, 1e-5))
            x = x + dense(p, name + "mlp.c_proj", f.gelu(y, approximate="tanh"))
        return norm(p, "transformer.ln_f", x, 1e-5) @ p["transformer.wte.weight"].T

    return {"name": "gpt2", "heads": heads, "width": width, "layers": layers, "feed_forward": wide, **KEEP_ALL}, forward


# ---- Touvron et al. 2023
def llama(draw):
    groups, kv_heads, layers = draw.randint(1, 2), draw.randint(1, 2), draw.randint(1, 2)
    heads, size, wide, base = groups * kv_heads, draw.choice([2, 4, 6]), draw.randint(2, 9), draw.choice([100.0, 10000.0])
    bias, width = draw.random() < 0.5, heads * size

    def rms(p, name, x):
        return x / (x.pow(2).mean(-1, True) + 1e-6).sqrt() * p[name + ".weight"]

    def turned(x):
        t, half = x.shape[2], x.shape[3] // 2
        angle = torch.arange(t)[:, None] * base ** (-torch.arange(half) / half)
        a, b = x[..., :half], x[..., half:]
        return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], -1)

    def forward(p, batch):
        x = p["model.embed_tokens.weight"][batch["input_ids"]]
        for i in range(layers):
            name = f"model.layers.{i}."
            y = rms(p, name + "input_layernorm", x)
            q = turned(heads_of(linear(p, name + "self_attn.q_proj", y), heads))
            k, v = (heads_of(linear(p, name + f"self_attn.{part}_proj", y), kv_heads) for part in "kv")
            k, v = (each.repeat_interleave(groups, 1) for each in (turned(k), v))
            x = x + linear(p, name + "self_attn.o_proj", attend(q, k, v, hidden_of(batch), True))
            y = rms(p, name + "post_attention_layernorm", x)
            x = x + linear(p, name + "mlp.down_proj", f.silu(linear(p, name + "mlp.gate_proj", y)) * linear(p, name + "mlp.up_proj", y))
        return linear(p, "lm_head", rms(p, "model.norm", x))

    return {"name": "decoder", "heads": heads, "kv_heads": kv_heads, "width": width, "layers": layers, "feed_forward": wide,
            "rope_base": base, "attention_bias": bias}, forward


def draw_network(draw, classes):
    """(kind of data, model, shape of a sample, forward); forward takes parameters by name and a batch."""
    kinds = ["mlp", "cifar", "bert", "gpt2", "llama"] + (["vit"] if torchvision is not None else [])
    kind = draw.choice(kinds)
    if kind == "mlp":
        return "image", *mlp(draw), [draw.randint(1, 4), draw.randint(1, 4), draw.randint(1, 3)]
    if kind == "cifar":
        return "image", *cifar_resnet(draw), [draw.randint(5, 12), draw.randint(5, 12), draw.randint(1, 3)]
    if kind == "vit":
        side = 16 * draw.randint(1, 2)
        return "image", *vit(draw, classes, side), [side, side, 3]
    model, forward = {"bert": bert, "gpt2": gpt2, "llama": llama}[kind](draw)
    return "text" if kind == "bert" else "tokens", model, forward, None
