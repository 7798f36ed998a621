"""Networks of PyTorch from the lists of layers that a configuration has (docs/guide/own_network.md).

Pictures are [N, C, H, W], tokens [N, T, C]. Names of parameters are those of the program."""
import torch
from torch import nn


def is_image(x):
    return x.dim() == 4


def in_middle(module, x):
    """Calls a module of channels, which come second there and last here."""
    return module(x) if x.dim() != 3 else module(x.transpose(1, 2)).transpose(1, 2)


class Norm(nn.Module):
    """Adopts the parameters of one of PyTorch's norms, so that they keep their names."""

    def __init__(self, norm):
        super().__init__()
        for name, parameter in norm.named_parameters():
            self.register_parameter(name, parameter)
        for name, buffer in norm.named_buffers():
            self.register_buffer(name, buffer)
        self.norm = [norm]  # in a list: no child, whose names would count

    def forward(self, x, mask):
        norm = self.norm[0]
        if isinstance(norm, nn.LayerNorm):
            if is_image(x):
                return nn.functional.layer_norm(x.permute(0, 2, 3, 1), norm.normalized_shape, self.weight, self.bias,
                                                norm.eps).permute(0, 3, 1, 2)
            return nn.functional.layer_norm(x, norm.normalized_shape, self.weight, self.bias, norm.eps)
        if isinstance(norm, nn.GroupNorm):
            return in_middle(lambda y: nn.functional.group_norm(y, norm.num_groups, self.weight, self.bias, norm.eps), x)
        self.num_batches_tracked += 1
        return in_middle(lambda y: nn.functional.batch_norm(y, self.running_mean, self.running_var, self.weight, self.bias,
                                                            True, norm.momentum, norm.eps), x)


class Plain(nn.Module):
    """A function without parameters."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x, mask):
        return self.function(x)


class Conv1d(nn.Conv1d):
    def forward(self, x, mask):
        return super().forward(x.transpose(1, 2)).transpose(1, 2)


class Conv2d(nn.Conv2d):
    def forward(self, x, mask):
        return super().forward(x)


class Linear(nn.Linear):
    def forward(self, x, mask):
        return super().forward(x)


class Embedding(nn.Embedding):
    def forward(self, x, mask):
        return super().forward(x)


class PositionEmbedding(nn.Module):
    def __init__(self, rows, channels):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(rows, channels))

    def forward(self, x, mask):
        return x + self.weight[:x.shape[1]]


class ClassToken(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1, 1, channels))

    def forward(self, x, mask):
        return torch.cat([self.weight.expand(x.shape[0], 1, -1), x], 1)


class PatchEmbedding(nn.Conv2d):
    def forward(self, x, mask):
        return super().forward(x).flatten(2).transpose(1, 2)


class Attention(nn.MultiheadAttention):
    def __init__(self, channels, keys):
        super().__init__(channels, keys["num_heads"], bias=keys.get("bias", True), batch_first=True)
        self.causal = keys.get("is_causal", False)

    def forward(self, x, mask):
        hidden = None if mask is None else mask == 0
        later = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1) if self.causal else None
        return super().forward(x, x, x, key_padding_mask=hidden, attn_mask=later, need_weights=False)[0]


class MeanPool(nn.Module):
    def forward(self, x, mask):
        if is_image(x):
            return x.mean((2, 3))
        if mask is None:
            return x.mean(1)
        weight = mask.to(x.dtype)[:, :, None]
        return (x * weight).sum(1) / weight.sum(1)


class Layers(nn.Module):
    def __init__(self, modules):
        super().__init__()
        for i, module in enumerate(modules):
            self.add_module(str(i), module)

    def forward(self, x, mask):
        for module in self.children():
            x = module(x, mask)
        return x


class Residual(Layers):
    def __init__(self, modules, shortcut):
        super().__init__(modules)
        if shortcut:
            self.shortcut = Layers(shortcut)

    def forward(self, x, mask):
        y = x
        for name, module in self.named_children():
            if name != "shortcut":
                y = module(y, mask)
        return y + (self.shortcut(x, mask) if hasattr(self, "shortcut") else x)


FIRST_KEYS = {"linear": "out_features", "dropout": "p", "dropout2d": "p", "leaky_relu": "negative_slope", "gelu": "approximate",
              "adaptive_avg_pool2d": "output_size", "adaptive_max_pool2d": "output_size", "residual": "modules"}
ACTIVATIONS = {"relu": torch.relu, "elu": nn.functional.elu, "silu": nn.functional.silu, "sigmoid": torch.sigmoid,
               "tanh": torch.tanh, "identity": lambda x: x}


def name_and_keys(entry):
    if isinstance(entry, str):
        return entry, {}
    (name, keys), = entry.items()
    return name, keys if isinstance(keys, dict) else {FIRST_KEYS[name]: keys}


def unrolled(entries):
    """The entries, with the copies of each repeat in its place."""
    out = []
    for entry in entries:
        name, keys = name_and_keys(entry)
        out += unrolled(keys["modules"]) * keys["times"] if name == "repeat" else [entry]
    return out


class Maker:
    """`x` is an example, which goes through each layer as soon as it is made."""

    def __init__(self, x, mask, classes):
        self.x, self.mask, self.classes = x, mask, classes

    def all(self, entries):
        modules = []
        for entry in unrolled(entries):
            modules.append(self.layer(*name_and_keys(entry)))
            if modules[-1].__class__ not in (Residual, Layers):
                with torch.no_grad():
                    self.x = modules[-1](self.x, self.mask)
        return modules

    def layer(self, name, keys):
        x = self.x
        channels = x.shape[1] if is_image(x) else x.shape[-1]
        if name == "sequential":
            return Layers(self.all(keys["modules"]))
        if name == "residual":
            modules = self.all(keys["modules"])
            after, self.x = self.x, x
            shortcut = self.all(keys.get("shortcut", []))
            self.x = after
            return Residual(modules, shortcut)
        if name == "conv2d":
            return Conv2d(channels, keys["out_channels"], keys["kernel_size"], keys.get("stride", 1), keys.get("padding", 0),
                          keys.get("dilation", 1), keys.get("groups", 1), keys.get("bias", True))
        if name == "conv1d":
            return Conv1d(channels, keys["out_channels"], keys["kernel_size"], keys.get("stride", 1), keys.get("padding", 0),
                          keys.get("dilation", 1), keys.get("groups", 1), keys.get("bias", True))
        if name == "patch_embedding":
            return PatchEmbedding(channels, keys["embed_dim"], keys["patch_size"], keys["patch_size"])
        if name == "linear":
            return Linear(channels, keys.get("out_features", self.classes), keys.get("bias", True))
        if name == "embedding":
            return Embedding(keys["num_embeddings"], keys["embedding_dim"], keys.get("padding_idx"))
        if name == "position_embedding":
            return PositionEmbedding(keys.get("num_embeddings", x.shape[1]), channels)
        if name == "class_token":
            return ClassToken(channels)
        if name == "attention":
            return Attention(channels, keys)
        if name == "batch_norm":
            return Norm(nn.BatchNorm2d(channels, keys.get("eps", 1e-5), keys.get("momentum", 0.1)))
        if name == "layer_norm":
            return Norm(nn.LayerNorm(channels, keys.get("eps", 1e-5)))
        if name == "group_norm":
            return Norm(nn.GroupNorm(keys["num_groups"], channels, keys.get("eps", 1e-5)))
        if name == "mean_pool":
            return MeanPool()
        return Plain(self.function(name, keys))

    @staticmethod
    def function(name, keys):
        f = nn.functional
        if name in ACTIVATIONS:
            return ACTIVATIONS[name]
        if name in ("dropout", "dropout2d"):
            assert keys.get("p", 0.5) == 0, "what is dropped cannot be compared"
            return ACTIVATIONS["identity"]
        if name == "leaky_relu":
            return lambda x: f.leaky_relu(x, keys.get("negative_slope", 0.01))
        if name == "gelu":
            return lambda x: f.gelu(x, approximate=keys.get("approximate", "none"))
        if name in ("max_pool2d", "avg_pool2d", "max_pool1d", "avg_pool1d"):
            more = {"count_include_pad": keys.get("count_include_pad", True)} if name.startswith("avg") else {}
            pool = lambda x: getattr(f, name)(x, keys["kernel_size"], keys.get("stride"), keys.get("padding", 0), **more)
            return pool if name.endswith("2d") else lambda x: in_middle(pool, x)
        if name in ("adaptive_avg_pool2d", "adaptive_max_pool2d"):
            return lambda x: getattr(f, name)(x, keys["output_size"])
        return {"flatten": lambda x: x.flatten(1), "tokens": lambda x: x.flatten(2).transpose(1, 2),
                "transpose": lambda x: x.transpose(1, 2), "first_token": lambda x: x[:, 0]}[name]


def network(modules, x, mask, classes):
    """The network of a list of layers, for inputs like x."""
    return Layers(Maker(x, mask, classes).all(modules))
