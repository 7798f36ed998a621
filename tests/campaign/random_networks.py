"""Draws networks that are lists of layers (docs/guide/own_network.md), as objects of JSON."""
import random


class Flow:
    """What goes from layer to layer: an image h x w x c, t tokens of c, or a row of c."""

    def __init__(self, kind, h=0, w=0, t=0, c=0, varies=False):
        self.kind, self.h, self.w, self.t, self.c, self.varies = kind, h, w, t, c, varies

    def copy(self, **changes):
        flow = Flow(self.kind, self.h, self.w, self.t, self.c, self.varies)
        vars(flow).update(changes)
        return flow

    def key(self):
        return tuple(vars(self).values())


class Drawer:
    """`drops`: layers may drop elements at random, which another program cannot repeat."""

    def __init__(self, seed, drops):
        self.draw, self.drops = random.Random(seed), drops
        self.causal, self.mixes_tokens = False, True

    def chance(self, percent):
        return self.draw.randrange(100) < percent

    def divisor(self, number):
        return self.draw.choice([d for d in range(1, number + 1) if number % d == 0])

    # ---- windows: kernel, stride, padding and dilation that fit, and the extent that they give
    def window(self, extent, pool):
        dilation = 1 if pool or self.chance(75) else 2
        kernel = self.draw.randint(1, max(1, min(4, (extent - 1) // dilation + 1)))
        padding = self.draw.randint(0, kernel // 2 if pool else 2)
        stride = self.draw.randint(1, 3)
        after = (extent + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1
        return kernel, stride, padding, dilation, after

    def windows(self, flow, pool):
        """Keys of a layer of two axes, and the flow behind it."""
        high = self.window(flow.h, pool)
        wide = self.window(flow.w, pool) if self.chance(40) else None
        if wide is None:  # the same numbers for both axes
            kernel, stride, padding, dilation, after = high
            covered = dilation * (kernel - 1) + 1
            if covered > flow.w + 2 * padding:
                return None
            wide = (kernel, stride, padding, dilation, (flow.w + 2 * padding - covered) // stride + 1)
        names = ("kernel_size", "stride", "padding") + (() if pool else ("dilation",))
        keys = {}
        for i, name in enumerate(names):
            keys[name] = high[i] if high[i] == wide[i] and self.chance(80) else [high[i], wide[i]]
        return keys, flow.copy(h=high[4], w=wide[4])

    # ---- layers: each gives (entry, flow behind it), or None where it does not fit
    def conv2d(self, flow):
        found = self.windows(flow, False)
        if found is None:
            return None
        keys, after = found
        groups = self.divisor(flow.c) if self.chance(30) else 1
        after.c = groups * self.draw.randint(1, max(1, 8 // groups))
        keys = {"out_channels": after.c, **keys, "groups": groups, "bias": self.chance(60)}
        return {"conv2d": keys}, after

    def same_conv2d(self, flow, out):
        kernel = self.draw.choice([1, 3, 5])
        keys = {"out_channels": out, "kernel_size": kernel, "bias": self.chance(50)}
        keys["padding"] = "same" if self.chance(30) else kernel // 2
        return {"conv2d": keys}

    def pool2d(self, flow):
        found = self.windows(flow, True)
        if found is None:
            return None
        keys, after = found
        if self.chance(50):
            return {"max_pool2d": keys}, after
        if self.chance(50):
            keys["count_include_pad"] = self.chance(50)
        return {"avg_pool2d": keys}, after

    def adaptive_pool2d(self, flow):
        after = flow.copy(h=self.draw.randint(1, flow.h + 2), w=self.draw.randint(1, flow.w + 2))
        size = after.h if after.h == after.w else [after.h, after.w]
        return {self.draw.choice(["adaptive_avg_pool2d", "adaptive_max_pool2d"]): size}, after

    def conv1d(self, flow):
        kernel, stride, padding, dilation, after = self.window(flow.t, False)
        groups = self.divisor(flow.c) if self.chance(30) else 1
        out = groups * self.draw.randint(1, max(1, 8 // groups))
        return {"conv1d": {"out_channels": out, "kernel_size": kernel, "stride": stride, "padding": padding,
                           "dilation": dilation, "groups": groups, "bias": self.chance(60)}}, flow.copy(t=after, c=out)

    def pool1d(self, flow):
        kernel, stride, padding, _, after = self.window(flow.t, True)
        keys = {"kernel_size": kernel, "stride": stride, "padding": padding}
        if self.chance(50):
            return {"max_pool1d": keys}, flow.copy(t=after)
        return {"avg_pool1d": {**keys, "count_include_pad": self.chance(50)}}, flow.copy(t=after)

    def norm(self, flow):
        kinds = ["layer_norm"] + (["batch_norm", "group_norm"] if self.mixes_tokens or flow.kind != "tokens" else [])
        kind = self.draw.choice(kinds)
        keys = {"eps": self.draw.choice([1e-5, 1e-3])} if self.chance(30) else {}
        if kind == "batch_norm" and self.chance(30):
            keys["momentum"] = self.draw.choice([0.0, 0.3, 1.0])
        if kind == "group_norm":
            keys["num_groups"] = self.divisor(flow.c)
        return ({kind: keys} if keys else kind), flow

    def activation(self, flow):
        name = self.draw.choice(["relu", "relu", "relu", "leaky_relu", "elu", "gelu", "gelu", "silu", "sigmoid", "tanh", "identity"])
        if name == "leaky_relu" and self.chance(50):
            return {name: self.draw.choice([0, 0.2, 1])}, flow
        if name == "gelu" and self.chance(40):
            return {name: "tanh"}, flow
        return name, flow

    def dropout(self, flow):
        name = "dropout2d" if flow.kind == "image" and self.chance(30) else "dropout"
        return {name: self.draw.choice([0.1, 0.5]) if self.drops else 0}, flow

    def linear(self, flow):
        out = self.draw.randint(1, 9)
        return {"linear": {"out_features": out, "bias": self.chance(70)}}, flow.copy(c=out)

    def attention(self, flow):
        keys = {"num_heads": self.divisor(flow.c), "bias": self.chance(70)}
        if self.causal or self.chance(30):
            keys["is_causal"] = True
        if self.drops and self.chance(50):
            keys["dropout"] = 0.2
        return {"attention": keys}, flow

    def back_to(self, flow, c):
        """A layer that gives c channels and leaves the rest as it is."""
        if flow.kind == "image":
            return self.same_conv2d(flow, c)
        return {"linear": {"out_features": c, "bias": self.chance(70)}}

    def residual(self, flow):
        if self.chance(35):  # with a shortcut: both branches give what a first layer gives
            first = self.conv2d(flow) if flow.kind == "image" else self.linear(flow)
            if first is None:
                return None
            keys = first[0].get("conv2d")
            after = first[1]
            if keys is None:
                shortcut = [{"linear": after.c}]
            else:
                shortcut = [{"conv2d": dict(keys, bias=self.chance(50), groups=1)}]
            modules = [first[0]] + self.keeping(after)
            return {"residual": {"modules": modules, "shortcut": shortcut}}, after
        modules = self.keeping(flow)
        if self.chance(50):
            middle = self.draw.randint(1, 8)
            inner = flow.copy(c=middle)
            modules = modules + [self.back_to(flow, middle)] + self.keeping(inner) + [self.back_to(inner, flow.c)]
            if self.chance(50):
                modules.append(self.norm(flow)[0])
        if not modules:
            modules = [self.activation(flow)[0]]
        return {"residual": {"modules": modules} if self.chance(60) else modules}, flow

    def keeping(self, flow):
        """Up to two layers that change no extents."""
        kinds = [self.norm, self.activation] + ([self.attention] if flow.kind == "tokens" else [])
        return [self.draw.choice(kinds)(flow)[0] for _ in range(self.draw.randint(0, 2))]

    def nested(self, flow):
        modules = self.keeping(flow) or ["identity"]
        if self.chance(50):
            return {"sequential": {"modules": modules}}, flow
        return {"repeat": {"times": self.draw.randint(1, 3), "modules": modules}}, flow

    # ---- whole networks
    def layer(self, flow):
        same = [self.norm, self.activation, self.activation, self.residual, self.nested, self.dropout]
        if flow.kind == "image":
            choices = [self.conv2d] * 4 + [self.pool2d, self.adaptive_pool2d] + same
        elif flow.kind == "tokens":
            choices = [self.linear, self.attention, self.attention] + same
            if not flow.varies:
                choices += [self.conv1d, self.pool1d]
                if self.chance(30):
                    return "transpose", flow.copy(t=flow.c, c=flow.t)
        else:
            choices = [self.linear] * 2 + same
        for _ in range(20):
            found = self.draw.choice(choices)(flow)
            if found is not None and min(found[1].c, max(found[1].h, found[1].kind != "image")) >= 1 and (
                    found[1].kind != "image" or found[1].h * found[1].w > 0) and (
                    found[1].kind != "tokens" or found[1].varies or found[1].t > 0):
                return found
        return self.activation(flow)

    def some(self, flow, fewest, most):
        modules = []
        for _ in range(self.draw.randint(fewest, most)):
            entry, flow = self.layer(flow)
            modules.append(entry)
        return modules, flow

    def to_tokens(self, flow):
        if self.chance(50):
            return ["tokens"], flow.copy(kind="tokens", t=flow.h * flow.w, h=0, w=0)
        high, wide = self.divisor(flow.h), self.divisor(flow.w)
        width = self.draw.randint(1, 8)
        return [{"patch_embedding": {"embed_dim": width, "patch_size": [high, wide]}}], flow.copy(
            kind="tokens", t=(flow.h // high) * (flow.w // wide), h=0, w=0, c=width)

    def image_network(self):
        """(modules, shape of a sample): pictures."""
        flow = Flow("image", self.draw.randint(3, 10), self.draw.randint(3, 10), c=self.draw.randint(1, 4))
        shape = [flow.h, flow.w, flow.c]
        modules, flow = self.some(flow, 1, 6)
        if self.chance(40):
            entries, flow = self.to_tokens(flow)
            modules += entries
            if self.chance(40):
                modules.append("class_token")
                flow = flow.copy(t=flow.t + 1)
            if self.chance(40):
                modules.append("position_embedding")
            entries, flow = self.some(flow, 1, 5)
            modules += entries
        return modules + self.row_of(flow), shape

    def row_of(self, flow):
        ends = ["mean_pool"] + ([] if flow.varies else ["flatten"]) + (["first_token"] if flow.kind == "tokens" else [])
        end = self.draw.choice(ends)
        if end == "flatten":
            flow = flow.copy(kind="row", c=flow.c * max(1, flow.h * flow.w) * max(1, flow.t), h=0, w=0, t=0)
        else:
            flow = flow.copy(kind="row", h=0, w=0, t=0)
        modules, flow = self.some(flow, 0, 3)
        return [end] + modules + ["linear"]

    def text_network(self, vocabulary, longest, each_token):
        """Modules of a network that reads tokens: one output for a text, or one for each token."""
        self.causal, self.mixes_tokens = each_token, False
        width = self.draw.choice([2, 4, 6, 8])
        embedding = {"embedding_dim": width, "num_embeddings": vocabulary}
        if self.chance(30):
            embedding["padding_idx"] = self.draw.randrange(vocabulary)
        modules, flow = [{"embedding": embedding}], Flow("tokens", t=longest, c=width, varies=True)
        if self.chance(60):
            modules.append("position_embedding")
        entries, flow = self.some(flow, 1, 6)
        modules += entries
        if each_token:
            return modules + [{"linear": vocabulary}]
        return modules + self.row_of(flow)
