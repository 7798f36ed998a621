"""Prints files.inc: safetensors files written here byte by byte, with tiny BERT, GPT-2 and DenseNet
under the names of Hugging Face and torchvision, and what torch.nn's own layers give with them.
Needs python3-torch alone; made with 1.13.

Lines: case, "file", base64; case, "output", numbers. Inputs come from formulas that the test
repeats."""
import base64
import json
import struct

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(7)
WIDTH, HEADS, INNER, VOCAB, PLACES, CLASSES, N, T = 8, 2, 12, 10, 8, 3, 2, 6
DTYPES = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.int64: "I64"}

ids = (torch.arange(N * T).reshape(N, T) * 7 + 3) % VOCAB
padding = torch.zeros(N, T, dtype=torch.bool)
padding[1, 4:] = True
image = ((torch.arange(N * 3 * 32 * 32) * 7919) % 257).float().reshape(N, 3, 32, 32) / 257 - 0.5


def safetensors(tensors):
    """Wide types first, then by name, with the metadata that files for PyTorch have."""
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name in sorted(tensors, key=lambda n: (-tensors[n].element_size(), n)):
        t = tensors[name].detach().contiguous()
        bits = t.view(torch.int16) if t.element_size() == 2 else t
        code = {2: "h", 4: "f", 8: "q"}[t.element_size()]
        raw = struct.pack(f"<{t.numel()}{code}", *bits.flatten().tolist())
        header[name] = {"dtype": DTYPES[t.dtype], "shape": list(t.shape),
                        "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def shaken(module, dtype=torch.float32):
    """Values that `dtype` has, none of them where PyTorch starts."""
    with torch.no_grad():
        for name, t in [*module.named_parameters(), *module.named_buffers()]:
            if t.dtype == torch.int64:
                continue
            noise = 0.3 * torch.randn(t.shape)
            start = 1 if t.dim() == 1 and name.endswith("weight") else 0
            t.copy_((torch.rand(t.shape) / 4 + 0.05 if "var" in name else start + noise).to(dtype))
    return module.eval()


def as_type(tensors, dtype):
    return {n: t if t.dtype == torch.int64 else t.to(dtype) for n, t in tensors.items()}


def norm(eps):
    return nn.LayerNorm(WIDTH, eps=eps)


def encoder_layer(inner, eps, **options):
    return nn.TransformerEncoderLayer(WIDTH, HEADS, inner, 0.0, layer_norm_eps=eps,
                                      batch_first=True, **options)


def bert():
    words, places, types = (nn.Embedding(n, WIDTH) for n in [VOCAB, PLACES, 2])
    first, layer = norm(1e-12), encoder_layer(INNER, 1e-12, activation="gelu")
    pooler, classifier = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, CLASSES)
    shaken(nn.ModuleList([words, places, types, first, layer, pooler, classifier]))
    at = "bert.encoder.layer.0."
    parts = {"bert.embeddings.word_embeddings": words,
             "bert.embeddings.position_embeddings": places,
             "bert.embeddings.token_type_embeddings": types, "bert.embeddings.LayerNorm": first,
             at + "attention.output.dense": layer.self_attn.out_proj,
             at + "attention.output.LayerNorm": layer.norm1,
             at + "intermediate.dense": layer.linear1, at + "output.dense": layer.linear2,
             at + "output.LayerNorm": layer.norm2, "bert.pooler.dense": pooler,
             "classifier": classifier}
    tensors = {f"{n}.{k}": t for n, m in parts.items() for k, t in m.named_parameters()}
    attention = layer.self_attn
    for i, name in enumerate(["query", "key", "value"]):
        rows = slice(i * WIDTH, (i + 1) * WIDTH)
        tensors[at + f"attention.self.{name}.weight"] = attention.in_proj_weight[rows]
        tensors[at + f"attention.self.{name}.bias"] = attention.in_proj_bias[rows]
    x = first(words(ids) + places(torch.arange(T)) + types(torch.arange(N * T).view(N, T) // 4 % 2))
    x = layer(x, src_key_padding_mask=padding)
    return tensors, classifier(torch.tanh(pooler(x[:, 0])))


def gpt2():
    words, places, last = nn.Embedding(VOCAB, WIDTH), nn.Embedding(PLACES, WIDTH), norm(1e-5)
    layer = encoder_layer(4 * WIDTH, 1e-5, norm_first=True,
                          activation=lambda x: F.gelu(x, approximate="tanh"))
    shaken(nn.ModuleList([words, places, last, layer]), torch.bfloat16)
    at = "transformer.h.0."
    attention = layer.self_attn
    tensors = {"transformer.wte.weight": words.weight, "transformer.wpe.weight": places.weight,
               at + "attn.c_attn.weight": attention.in_proj_weight.T,
               at + "attn.c_attn.bias": attention.in_proj_bias}
    for name, m in {at + "attn.c_proj": attention.out_proj, at + "mlp.c_fc": layer.linear1,
                    at + "mlp.c_proj": layer.linear2}.items():
        tensors[name + ".weight"], tensors[name + ".bias"] = m.weight.T, m.bias
    for name, m in {at + "ln_1": layer.norm1, at + "ln_2": layer.norm2,
                    "transformer.ln_f": last}.items():
        tensors[name + ".weight"], tensors[name + ".bias"] = m.weight, m.bias
    x = layer(words(ids) + places(torch.arange(T)), src_mask=torch.ones(T, T).triu(1).bool())
    return as_type(tensors, torch.bfloat16), last(x) @ words.weight.T


class DenseLayer(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm1, self.conv1 = nn.BatchNorm2d(channels), nn.Conv2d(channels, 4, 1, bias=False)
        self.norm2, self.conv2 = nn.BatchNorm2d(4), nn.Conv2d(4, 2, 3, padding=1, bias=False)

    def forward(self, x):
        y = self.conv2(F.relu(self.norm2(self.conv1(F.relu(self.norm1(x))))))
        return torch.cat([x, y], 1)


def densenet():
    net, channels = nn.Module(), 4
    features = nn.Sequential()
    features.add_module("conv0", nn.Conv2d(3, channels, 7, 2, 3, bias=False))
    features.add_module("norm0", nn.BatchNorm2d(channels))
    features.add_module("relu0", nn.ReLU())
    features.add_module("pool0", nn.MaxPool2d(3, 2, 1))
    for block in range(1, 5):
        features.add_module(f"denseblock{block}", nn.Sequential())
        features[-1].add_module("denselayer1", DenseLayer(channels))
        channels += 2
        if block < 4:
            transition = nn.Sequential()
            transition.add_module("norm", nn.BatchNorm2d(channels))
            transition.add_module("relu", nn.ReLU())
            transition.add_module("conv", nn.Conv2d(channels, channels // 2, 1, bias=False))
            transition.add_module("pool", nn.AvgPool2d(2, 2))
            features.add_module(f"transition{block}", transition)
            channels //= 2
    features.add_module("norm5", nn.BatchNorm2d(channels))
    net.features, net.classifier = features, nn.Linear(channels, CLASSES)
    shaken(net, torch.float16)
    y = net.classifier(F.relu(features(image)).mean((2, 3)))
    return as_type(net.state_dict(), torch.float16), y


print('R"golden(', end="")
for make in [bert, gpt2, densenet]:
    tensors, output = make()
    print(make.__name__, "file", base64.b64encode(safetensors(tensors)).decode())
    print(make.__name__, "output", *(f"{v:.8g}" for v in output.flatten().tolist()))
print(')golden"')
