"""Prints language_models.inc: what tiny BERT, RoBERTa, DistilBERT and GPT-2 give, written out here from the papers with
torch.nn.functional, in f64, under the parameter names of Hugging Face. Weights, ids and masks come
from formulas that the test repeats. Needs python3-torch; made with 1.13.

Lines: case, tensor, numbers. `logits`: all of them. Others: a parameter and two sums over its
gradient g of sum(logits^2), in the file's layout: sum(g) and sum(g[i] sin(i + 1))."""
import math

import torch
import torch.nn.functional as F

LAYERS, WIDTH, HEADS, VOCAB, PLACES, N, T = 2, 16, 2, 20, 12, 2, 6
INNER, CLASSES = 24, 3


def filled(shapes):
    """Element i of the k-th name in order: (7919 i^2 + 104729 i + 1299709 k) mod 65537 / 65537 - 1/2,
    for a norm's weight plus 1."""
    weights = {}
    for k, name in enumerate(sorted(shapes)):
        i = torch.arange(math.prod(shapes[name]))
        values = ((7919 * i * i + 104729 * i + 1299709 * k) % 65537).double() / 65537 - 0.5
        if name.endswith(".weight") and len(shapes[name]) == 1:
            values += 1
        weights[name] = values.reshape(shapes[name]).requires_grad_(True)
    return weights


ids = (torch.arange(N * T).reshape(N, T) * 7 + 3) % VOCAB
types = (torch.arange(N * T).reshape(N, T) // 4) % 2
mask = torch.ones(N, T, dtype=torch.int64)
mask[1, 4:] = 0


def attention(q, k, v, hidden):
    """hidden: True where a score does not count, broadcast to [N, HEADS, T, T]."""
    split = lambda x: x.reshape(N, T, HEADS, WIDTH // HEADS).transpose(1, 2)
    scores = split(q) @ split(k).transpose(2, 3) / math.sqrt(WIDTH // HEADS)
    y = scores.masked_fill(hidden, -math.inf).softmax(-1) @ split(v)
    return y.transpose(1, 2).reshape(N, T, WIDTH)


def with_layers(shapes, dense, norms):
    """Adds weight and bias of each dense layer, whose weight has the shape given, and of each norm."""
    for name, shape in dense.items():
        shapes[name + ".weight"], shapes[name + ".bias"] = shape, shape[:1]
    for name in norms:
        shapes[name + ".weight"], shapes[name + ".bias"] = [WIDTH], [WIDTH]
    return shapes


def bert_shapes(head):
    h = WIDTH
    shapes = {"bert.embeddings.word_embeddings.weight": [VOCAB, h],
              "bert.embeddings.position_embeddings.weight": [PLACES, h],
              "bert.embeddings.token_type_embeddings.weight": [2, h]}
    dense = {"classifier": [CLASSES, h], "bert.pooler.dense": [h, h]}
    norms = ["bert.embeddings.LayerNorm"]
    if head == "masked_lm":
        dense = {"cls.predictions.transform.dense": [h, h]}
        norms.append("cls.predictions.transform.LayerNorm")
        shapes["cls.predictions.bias"] = [VOCAB]
    for i in range(LAYERS):
        at = f"bert.encoder.layer.{i}."
        for name in ["query", "key", "value"]:
            dense[at + "attention.self." + name] = [h, h]
        dense[at + "attention.output.dense"] = [h, h]
        dense[at + "intermediate.dense"] = [INNER, h]
        dense[at + "output.dense"] = [h, INNER]
        norms += [at + "attention.output.LayerNorm", at + "output.LayerNorm"]
    return with_layers(shapes, dense, norms)


def bert(w, head):
    dense = lambda x, name: F.linear(x, w[name + ".weight"], w[name + ".bias"])
    norm = lambda x, name: F.layer_norm(x, [WIDTH], w[name + ".weight"], w[name + ".bias"], 1e-12)
    table = lambda name, at: F.embedding(at, w[f"bert.embeddings.{name}_embeddings.weight"])
    words = F.embedding(ids, w["bert.embeddings.word_embeddings.weight"], padding_idx=0)
    x = norm(words + table("position", torch.arange(T)) + table("token_type", types),
             "bert.embeddings.LayerNorm")
    hidden = (mask == 0)[:, None, None, :]
    for i in range(LAYERS):
        at = f"bert.encoder.layer.{i}."
        q, k, v = (dense(x, at + "attention.self." + name) for name in ["query", "key", "value"])
        y = dense(attention(q, k, v, hidden), at + "attention.output.dense")
        x = norm(y + x, at + "attention.output.LayerNorm")
        y = dense(F.gelu(dense(x, at + "intermediate.dense")), at + "output.dense")
        x = norm(y + x, at + "output.LayerNorm")
    if head == "classification":
        return dense(torch.tanh(dense(x[:, 0], "bert.pooler.dense")), "classifier")
    x = norm(F.gelu(dense(x, "cls.predictions.transform.dense")),
             "cls.predictions.transform.LayerNorm")
    return F.linear(x, w["bert.embeddings.word_embeddings.weight"], w["cls.predictions.bias"])


def roberta_shapes(head):
    """BERT's, under other names, with one type and another head."""
    heads = {"cls.predictions.transform.dense": "lm_head.dense", "cls.predictions.bias": "lm_head.bias",
             "cls.predictions.transform.LayerNorm": "lm_head.layer_norm", "classifier": "classifier.out_proj",
             "bert.pooler.dense": "classifier.dense", "bert.": "roberta."}
    shapes = {}
    for name, shape in bert_shapes(head).items():
        for old, new in heads.items():
            if name.startswith(old):
                shapes[new + name[len(old):]] = shape
                break
    shapes["roberta.embeddings.token_type_embeddings.weight"] = [1, WIDTH]
    return shapes


def roberta(w, head):
    dense = lambda x, name: F.linear(x, w[name + ".weight"], w[name + ".bias"])
    norm = lambda x, name: F.layer_norm(x, [WIDTH], w[name + ".weight"], w[name + ".bias"], 1e-5)
    table = lambda name: w[f"roberta.embeddings.{name}_embeddings.weight"]
    # Tokens count from 2, padding stands at 1. The head for masked tokens also shows what padding
    # gives, which nobody reads, and which counts on here.
    at = torch.arange(2, T + 2).expand(N, T)
    if head == "classification":
        at = at * mask + (1 - mask)
    x = F.embedding(ids, table("word"), padding_idx=1) + F.embedding(at, table("position")) + table("token_type")[0]
    x = norm(x, "roberta.embeddings.LayerNorm")
    hidden = (mask == 0)[:, None, None, :]
    for i in range(LAYERS):
        at = f"roberta.encoder.layer.{i}."
        q, k, v = (dense(x, at + "attention.self." + name) for name in ["query", "key", "value"])
        y = dense(attention(q, k, v, hidden), at + "attention.output.dense")
        x = norm(y + x, at + "attention.output.LayerNorm")
        y = dense(F.gelu(dense(x, at + "intermediate.dense")), at + "output.dense")
        x = norm(y + x, at + "output.LayerNorm")
    if head == "classification":
        return dense(torch.tanh(dense(x[:, 0], "classifier.dense")), "classifier.out_proj")
    x = norm(F.gelu(dense(x, "lm_head.dense")), "lm_head.layer_norm")
    return F.linear(x, table("word"), w["lm_head.bias"])


def distilbert_shapes(head):
    h = WIDTH
    shapes = {"distilbert.embeddings.word_embeddings.weight": [VOCAB, h],
              "distilbert.embeddings.position_embeddings.weight": [PLACES, h]}
    dense = {"pre_classifier": [h, h], "classifier": [CLASSES, h]}
    norms = ["distilbert.embeddings.LayerNorm"]
    if head == "masked_lm":
        dense = {"vocab_transform": [h, h]}
        norms.append("vocab_layer_norm")
        shapes["vocab_projector.bias"] = [VOCAB]
    for i in range(LAYERS):
        at = f"distilbert.transformer.layer.{i}."
        for name in ["q_lin", "k_lin", "v_lin", "out_lin"]:
            dense[at + "attention." + name] = [h, h]
        dense[at + "ffn.lin1"], dense[at + "ffn.lin2"] = [INNER, h], [h, INNER]
        norms += [at + "sa_layer_norm", at + "output_layer_norm"]
    return with_layers(shapes, dense, norms)


def distilbert(w, head):
    dense = lambda x, name: F.linear(x, w[name + ".weight"], w[name + ".bias"])
    norm = lambda x, name: F.layer_norm(x, [WIDTH], w[name + ".weight"], w[name + ".bias"], 1e-12)
    words = w["distilbert.embeddings.word_embeddings.weight"]
    x = F.embedding(ids, words, padding_idx=0) + w["distilbert.embeddings.position_embeddings.weight"][:T]
    x = norm(x, "distilbert.embeddings.LayerNorm")
    hidden = (mask == 0)[:, None, None, :]
    for i in range(LAYERS):
        at = f"distilbert.transformer.layer.{i}."
        q, k, v = (dense(x, at + "attention." + name) for name in ["q_lin", "k_lin", "v_lin"])
        x = norm(dense(attention(q, k, v, hidden), at + "attention.out_lin") + x, at + "sa_layer_norm")
        x = norm(dense(F.gelu(dense(x, at + "ffn.lin1")), at + "ffn.lin2") + x, at + "output_layer_norm")
    if head == "classification":
        return dense(torch.relu(dense(x[:, 0], "pre_classifier")), "classifier")
    x = norm(F.gelu(dense(x, "vocab_transform")), "vocab_layer_norm")
    return F.linear(x, words, w["vocab_projector.bias"])


def gpt2_shapes():
    h = WIDTH
    shapes = {"transformer.wte.weight": [VOCAB, h], "transformer.wpe.weight": [PLACES, h]}
    norms = ["transformer.ln_f"]
    for i in range(LAYERS):
        at = f"transformer.h.{i}."
        norms += [at + "ln_1", at + "ln_2"]
        for name, shape in [("attn.c_attn", [h, 3 * h]), ("attn.c_proj", [h, h]),
                            ("mlp.c_fc", [h, 4 * h]), ("mlp.c_proj", [4 * h, h])]:
            shapes[at + name + ".weight"], shapes[at + name + ".bias"] = shape, shape[1:]
    for name in norms:
        shapes[name + ".weight"], shapes[name + ".bias"] = [h], [h]
    return shapes


def gpt2(w):
    conv = lambda x, name: x @ w[name + ".weight"] + w[name + ".bias"]
    norm = lambda x, name: F.layer_norm(x, [WIDTH], w[name + ".weight"], w[name + ".bias"], 1e-5)
    gelu = lambda x: 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    x = w["transformer.wte.weight"][ids] + w["transformer.wpe.weight"][:T]
    hidden = torch.ones(T, T).triu(1).bool() | (mask == 0)[:, None, None, :]
    for i in range(LAYERS):
        at = f"transformer.h.{i}."
        q, k, v = conv(norm(x, at + "ln_1"), at + "attn.c_attn").split(WIDTH, dim=2)
        x = x + conv(attention(q, k, v, hidden), at + "attn.c_proj")
        x = x + conv(gelu(conv(norm(x, at + "ln_2"), at + "mlp.c_fc")), at + "mlp.c_proj")
    return norm(x, "transformer.ln_f") @ w["transformer.wte.weight"].T


def show(case, name, values):
    print(case, name, *(f"{v:.10g}" for v in values))


print('R"golden(', end="")
for case, shapes, run in [
        ("bert_classification", bert_shapes("classification"), lambda w: bert(w, "classification")),
        ("bert_masked_lm", bert_shapes("masked_lm"), lambda w: bert(w, "masked_lm")),
        ("roberta_classification", roberta_shapes("classification"), lambda w: roberta(w, "classification")),
        ("roberta_masked_lm", roberta_shapes("masked_lm"), lambda w: roberta(w, "masked_lm")),
        ("distilbert_classification", distilbert_shapes("classification"), lambda w: distilbert(w, "classification")),
        ("distilbert_masked_lm", distilbert_shapes("masked_lm"), lambda w: distilbert(w, "masked_lm")),
        ("gpt2", gpt2_shapes(), gpt2)]:
    weights = filled(shapes)
    logits = run(weights)
    show(case, "logits", logits.flatten().tolist())
    (logits * logits).sum().backward()
    for name in sorted(weights):
        g = weights[name].grad.flatten()
        wave = torch.sin(torch.arange(1, len(g) + 1, dtype=torch.float64))
        show(case, name, [g.sum().item(), (g * wave).sum().item()])
print(')golden"')
