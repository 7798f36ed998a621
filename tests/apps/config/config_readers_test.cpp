// Every key of the table is read by every run, or says who reads it: where that is so it is
// accepted, and elsewhere refused.
#include <doctest/doctest.h>

#include <map>

#include "apps/config/keys/config_table.h"
#include "apps/config/resolve.h"
#include "tests/apps/run.h"

namespace frugal::apps {
namespace {

// A value that is not the default, what makes a run that reads it, and what makes one that does
// not: keys set over the defaults.
struct Row {
  Json value;
  std::vector<std::string> read, unread;
};

const std::map<std::string, Row>& rows() {
  const std::vector<std::string>
      gcn = {"model.name=gcn", "data.name=random_graph"},
      gat = {"model.name=gat", "data.name=random_graph"},
      gcnii = {"model.name=gcnii", "data.name=random_graph"},
      sage = {"model.name=sage", "data.name=random_graph"},
      gpt2 = {"model.name=gpt2", "data.name=random_tokens"},
      decoder = {"model.name=decoder", "data.name=random_tokens"},
      bert = {"model.name=bert_tiny", "data.name=random_tokens"},
      text = {"model.name=gpt2", "data.name=text"},
      conversations = {"model.name=gpt2", "data.name=conversations"},
      glue = {"model.name=bert_tiny", "data.name=sst2"},
      cora = {"model.name=gcn", "data.name=cora"}, images = {}, folder = {"data.name=image_folder"},
      list = {"data.name=image_list"}, random = {"data.name=random"}, mlp = {"model.name=mlp"},
      masks = {"model.name=unet", "data.name=image_masks"},
      fcn = {"model.name=fcn_resnet50", "data.name=image_masks"},
      focal = {"model.name=unet", "data.name=image_masks", "train.loss=focal"},
      dice = {"model.name=unet", "data.name=image_masks", "train.loss=dice"},
      retinanet = {"model.name=retinanet_resnet50_fpn", "data.name=image_boxes"},
      faster_rcnn = {"model.name=fasterrcnn_resnet50_fpn", "data.name=image_boxes"},
      lora = {"adapter.type=lora"}, csv = {"model.name=mlp", "data.name=csv"},
      tensors = {"data.name=tensors"}, jsonl = {"model.name=bert_tiny", "data.name=jsonl"},
      simsiam = {"model.name=simsiam"}, byol = {"model.name=byol"}, moco = {"model.name=moco_v2"},
      jsonl_gpt = {"model.name=gpt2", "data.name=jsonl"};
  const auto with = [](std::vector<std::string> sets, const std::string& set) {
    sets.push_back(set);
    return sets;
  };
  const std::vector<std::string> adam = {"optim.name=adam"}, sgd = {},
                                 cosine = {"schedule.name=cosine"}, one_cycle = {},
                                 step = {"schedule.name=step", "schedule.milestones=[1]"},
                                 L0 = {"compression.bits=0"}, L1 = {},
                                 L2 = {"compression.gact.adaptive=true"},
                                 acgc = {"compression.policy=acgc"},
                                 actnn = {"compression.policy=actnn"},
                                 budget = {"compression.memory_budget=1/6"}, cpu = {},
                                 cuda = {"device=cuda"};
  static const std::map<std::string, Row> all = {
      {"adapter.rank", {4, lora, images}},
      {"adapter.alpha", {4.5, lora, images}},
      {"adapter.dropout", {0.5, lora, images}},
      {"adapter.targets", {{"fc"}, lora, images}},
      {"adapter.rank_pattern", {{"fc=2"}, lora, images}},
      {"adapter.alpha_pattern", {{"fc=2"}, lora, images}},
      {"adapter.modules_to_save", {{"fc"}, lora, images}},
      {"adapter.bias", {"all", lora, images}},
      {"model.head", {"reset", {"model.weights=w"}, images}},
      {"model.in_channels", {3, images, gcn}},
      {"model.modules", {{"flatten"}, {"model.name=sequential"}, images}},
      {"model.shortcut", {"B", images, mlp}},
      {"model.stem", {"cifar", {"model.name=resnet18"}, images}},
      {"model.hidden", {{3}, mlp, images}},
      {"model.dropout", {0.5, mlp, images}},
      {"model.attention_dropout", {0.5, bert, mlp}},
      {"model.input_dropout", {0.5, gcn, gcnii}},
      {"model.stochastic_depth", {0.5, {"model.name=swin_t"}, {"model.name=densenet121"}}},
      {"model.layers", {26, images, mlp}},
      {"model.width", {32, images, mlp}},
      {"model.heads", {2, gat, gcn}},
      {"model.window", {4, {"model.name=swin_t"}, images}},
      {"model.feed_forward", {32, gpt2, gat}},
      {"model.max_positions", {256, gpt2, images}},
      {"model.vocab_size", {99, bert, images}},
      {"model.family", {"qwen3", decoder, gpt2}},
      {"model.kv_heads", {1, decoder, gpt2}},
      {"model.head_size", {32, decoder, gpt2}},
      {"model.norm_eps", {1e-5, decoder, gpt2}},
      {"model.activation", {"gelu", decoder, gpt2}},
      {"model.tied", {false, gpt2, bert}},
      {"model.attention_bias", {true, decoder, gpt2}},
      {"model.mlp_bias", {true, decoder, gpt2}},
      {"model.rope_base", {5e5, decoder, gpt2}},
      {"model.rope_scaling", {"linear", decoder, gpt2}},
      {"model.rope_factor", {4.0, decoder, gpt2}},
      {"model.rope_first_length", {64.0, decoder, gpt2}},
      {"model.rope_low", {2.0, decoder, gpt2}},
      {"model.rope_high", {8.0, decoder, gpt2}},
      {"model.rope_most_turns", {16.0, decoder, gpt2}},
      {"model.rope_least_turns", {2.0, decoder, gpt2}},
      {"model.rope_whole_pairs", {false, decoder, gpt2}},
      {"model.rope_gain", {1.2, decoder, gpt2}},
      {"model.rope_local_base", {5e3, decoder, gpt2}},
      {"model.rope_layers", {std::vector<int>(30, 1), decoder, gpt2}},
      {"model.attention_window", {64, decoder, gpt2}},
      {"model.window_layers", {std::vector<int>(30, 1), decoder, gpt2}},
      {"model.attention_scale", {0.1, decoder, gpt2}},
      {"model.attention_cap", {50.0, decoder, gpt2}},
      {"model.logit_cap", {30.0, decoder, gpt2}},
      {"model.rebuilt_products", {"all", decoder, gpt2}},
      {"model.batch_norm", {true, gcn, images}},
      {"model.residual", {true, gcn, images}},
      {"model.jump", {"cat", sage, images}},
      {"model.alpha", {0.5, gcnii, gcn}},
      {"model.theta", {0.25, gcnii, gcn}},
      {"model.aggregation", {"max", sage, gcn}},
      {"model.out_heads", {2, gat, gcn}},
      {"model.slope", {0.5, gat, gcn}},
      {"model.aux_loss", {true, fcn, masks}},
      {"model.trunk", {"resnet18", retinanet, images}},
      {"model.anchor_side", {16, faster_rcnn, images}},
      {"model.box_loss", {"giou", retinanet, images}},
      {"model.deterministic_sampling", {true, faster_rcnn, retinanet}},
      {"model.projector", {{8}, simsiam, images}},
      {"model.predictor", {8, simsiam, moco}},
      {"model.momentum", {0.5, byol, simsiam}},
      {"model.queue", {64, moco, byol}},
      {"model.temperature", {0.5, moco, byol}},
      {"model.neighbours", {5, byol, images}},
      {"data.views.area", {0.5, simsiam, images}},
      {"data.views.flip", {false, simsiam, images}},
      {"data.views.color_jitter", {{0.1, 0.1, 0.1, 0.1}, simsiam, images}},
      {"data.views.jitter_share", {0.5, simsiam, images}},
      {"data.views.grayscale", {0.5, simsiam, images}},
      {"data.views.blur", {{1, 0.1}, simsiam, images}},
      {"data.views.solarize", {{0, 0.2}, simsiam, images}},
      {"data.dir", {"d", images, random}},
      {"data.batch_size", {64, images, gcn}},
      {"data.test_batch_size", {64, images, gcn}},
      {"data.drop_last", {true, images, gcn}},
      {"data.encoding", {"utf-16", csv, images}},
      {"data.crop_padding", {4, images, gcn}},
      {"data.flip", {true, images, text}},
      {"data.cutout", {4, images, retinanet}},
      {"data.normalize", {"none", cora, random}},
      {"data.mean", {{0.5}, images, gcn}},
      {"data.std", {{0.5}, images, gcn}},
      {"data.image_size", {32, masks, images}},
      {"data.channels", {1, folder, images}},
      {"data.resize", {300, list, images}},
      {"data.crop_area", {0.5, list, masks}},
      {"data.scale", {{0.5, 2}, masks, folder}},
      {"data.mask_values", {{0, 255}, masks, folder}},
      {"data.sides", {{160}, retinanet, masks}},
      {"data.longest_side", {224, with(retinanet, "data.sides=[160]"), retinanet}},
      {"data.auto_augment", {"rand", images, gcn}},
      {"data.color_jitter", {{0.4, 0.4, 0, 0}, images, glue}},
      {"data.grayscale", {0.5, folder, text}},
      {"data.blur", {0.5, images, gcn}},
      {"data.erasing", {0.5, images, gcn}},
      {"data.mixup", {0.2, images, csv}},
      {"data.cutmix", {1, folder, with(list, "data.several_labels=true")}},
      {"data.skip_bad", {true, retinanet, images}},
      {"data.exif", {"turn", masks, images}},
      {"data.several_labels", {true, list, folder}},
      {"data.class_names", {"f", tensors, images}},
      {"data.layout", {"nchw", tensors, csv}},
      {"data.target", {"t", csv, jsonl_gpt}},
      {"data.path_column", {"p", list, csv}},
      {"data.task", {"values", tensors, images}},
      {"data.drop", {{"id"}, csv, tensors}},
      {"data.categories", {"index", csv, tensors}},
      {"data.missing", {"fill", csv, tensors}},
      {"data.text", {"t", jsonl_gpt, text}},
      {"data.second_text", {"t", jsonl, jsonl_gpt}},
      {"data.workers", {2, retinanet, text}},
      {"data.train_samples", {9, glue, text}},
      {"data.test_samples", {9, bert, gpt2}},
      {"data.shape", {{8, 8, 3}, random, images}},
      {"data.classes", {3, bert, gpt2}},
      {"data.vocabulary", {"v", glue, text}},
      {"data.tokenizer", {"byte_bpe", text, glue}},
      {"data.max_length", {64, glue, images}},
      {"data.answers_only", {false, conversations, text}},
      {"data.truncate", {true, conversations, text}},
      {"data.join", {true, conversations, text}},
      {"data.validation", {0.25, text, glue}},
      {"data.split", {{0.5, 0.25}, csv, jsonl_gpt}},
      {"data.sparse_features", {false, cora, gcn}},
      {"data.sampler", {"node", gcn, images}},
      {"data.sampler_batches", {9, with(gcn, "data.sampler=node"), gcn}},
      {"data.walk_length", {9, with(gcn, "data.sampler=random_walk"), gcn}},
      {"data.fan_outs", {{9}, with(gcn, "data.sampler=neighbours"), images}},
      {"data.clusters", {9, with(gcn, "data.sampler=clusters"), gcn}},
      {"data.nodes", {9, gcn, cora}},
      {"data.edges", {9, gcn, cora}},
      {"data.features", {9, gcn, images}},
      {"optim.momentum", {0.5, sgd, adam}},
      {"optim.nesterov", {true, sgd, adam}},
      {"optim.trust", {0.5, {"optim.name=lars"}, sgd}},
      {"optim.beta1", {0.5, adam, sgd}},
      {"optim.beta2", {0.5, adam, sgd}},
      {"optim.eps", {0.5, adam, {"optim.name=adafactor"}}},
      {"optim.layer_decay", {0.5, bert, mlp}},
      {"schedule.warmup_steps", {9, cosine, one_cycle}},
      {"schedule.warmup_epochs", {9, cosine, one_cycle}},
      {"schedule.warmup_start", {0, with(cosine, "schedule.warmup_steps=9"), cosine}},
      {"schedule.milestones", {{1, 2}, step, cosine}},
      {"schedule.gamma", {0.5, step, cosine}},
      {"schedule.min_lr", {0.01, cosine, step}},
      {"schedule.peak_at", {0.5, one_cycle, cosine}},
      {"schedule.three_phase", {true, one_cycle, cosine}},
      {"schedule.cycle_momentum", {true, one_cycle, {"optim.name=adafactor"}}},
      {"schedule.base_momentum", {0.8, {"schedule.cycle_momentum=true"}, one_cycle}},
      {"schedule.max_momentum", {0.9, {"schedule.cycle_momentum=true"}, one_cycle}},
      {"compression.bits", {3, L1, budget}},
      {"compression.memory_budget", {"1/6", L1, actnn}},
      {"compression.gact.adaptive", {true, L1, budget}},
      {"compression.gact.interval", {9, {"compression.bits=2.5"}, L1}},
      {"compression.gact.samples", {9, L2, {"compression.guard=0.1"}}},
      {"compression.gact.share", {0.5, budget, actnn}},
      {"compression.gact.solver", {"greedy", L2, budget}},
      {"compression.actnn.by_sample", {false, with(actnn, "compression.bits=2.5"), actnn}},
      {"compression.actnn.by_tensor", {false, with(actnn, "compression.bits=2.5"), actnn}},
      {"compression.actnn.use_gradient",
       {true, with(actnn, "compression.bits=2.5"),
        with(with(actnn, "compression.bits=2.5"), "compression.actnn.by_sample=false")}},
      {"compression.actnn.norms", {"outside", with(actnn, "compression.bits=2.5"), actnn}},
      {"compression.actnn.gradients", {"last", with(actnn, "compression.bits=2.5"), actnn}},
      {"compression.actnn.adaptive", {true, actnn, L1}},
      {"compression.actnn.products_only", {true, actnn, with(actnn, "compression.bits=0")}},
      {"compression.actnn.interval", {9, with(actnn, "compression.bits=2.5"), L2}},
      {"compression.budget.recompute", {true, budget, L1}},
      {"compression.acgc.growth", {2, acgc, L1}},
      {"compression.acgc.rule", {"published", acgc, actnn}},
      {"compression.acgc.count", {"expected", acgc, L1}},
      {"compression.acgc.codec", {"entropy", acgc, L1}},
      {"compression.acgc.interval", {9, acgc, budget}},
      {"compression.recipes", {false, L0, budget}},
      {"compression.advanced.signs", {"masks", L1, acgc}},
      {"compression.advanced.chain", {2, L0, {"compression.recipes=false"}}},
      {"compression.advanced.min_elements", {9, with(L0, "compression.offload=d"), L0}},
      {"compression.advanced.group_size", {64, actnn, L0}},
      {"compression.advanced.group_axis", {"row", L1, actnn}},
      {"compression.advanced.recomputed", {"packed", with(L1, "train.checkpointing=true"), L1}},
      {"compression.advanced.rounding", {"nearest", L1, L0}},
      {"compression.entropy", {true, L1, L0}},
      {"compression.advanced.guard_min_bits", {2, {"compression.guard=0.1"}, L1}},
      {"compression.advanced.offload_window", {9, with(L0, "compression.offload=d"), L1}},
      {"compression.advanced.profile", {"f", {"device=meta"}, cpu}},
      {"compression.advanced.track_samples", {9, {"compression.guard=0.1"}, L2}},
      {"train.loss", {"dice", masks, images}},
      {"train.focal_gamma", {1, focal, masks}},
      {"train.class_weights", {{1, 2}, masks, dice}},
      {"train.patience", {9, gcn, images}},
      {"train.early_stop.min_delta", {0.1, {"train.early_stop.patience=3"}, images}},
      {"train.early_stop.metric", {"accuracy", {"train.early_stop.patience=3"}, images}},
      {"train.early_stop.unit", {"epochs", {"train.early_stop.patience=3"}, images}},
      {"train.checkpointing", {true, images, mlp}},
      {"train.checkpointed_blocks", {2, {"train.checkpointing=true"}, L1}},
      {"model.frozen_layers", {{"fc1."}, {"model.frozen=nf4"}, images}},
      {"train.freeze_epochs", {2, {R"(train.freeze=["fc1."])"}, images}},
      {"train.freeze_statistics", {false, {R"(train.freeze=["fc1."])"}, mlp}},
      {"cuda_graphs", {true, cuda, cpu}},
      {"deterministic", {false, cuda, cpu}},
      {"workspace_limit", {9, cuda, cpu}},
  };
  return all;
}

Config config_of(const std::vector<std::string>& sets, const std::string& path, const Json& value) {
  Json document = Json::object();
  apply_sets(document, sets);
  apply_set(document, path + "=" + value.dump());
  return parse_config(document);
}

std::string complaint(const Config& config, const std::string& path) {
  for (const UnreadKey& key : unread_keys(config))
    if (key.path == path) return key.what;
  return "";
}

}  // namespace

TEST_CASE("each key is accepted where it is read and refused where nothing reads it") {
  size_t seen = 0;
  for (const Section& section : config_sections())
    for (const Field& field : section.fields) {
      const std::string path = section.path(field);
      CAPTURE(path);
      REQUIRE(field.reader.reads);
      if (field.reader.by.empty()) {
        CHECK(field.reader.who == "every run");
        CHECK_FALSE(rows().contains(path));
        continue;
      }
      REQUIRE(rows().contains(path));
      ++seen;
      const Row& row = rows().at(path);
      REQUIRE(row.value != field.get(Config{}));
      CHECK(complaint(config_of(row.read, path, row.value), path).empty());
      const Config config = config_of(row.unread, path, row.value);
      const std::string what = complaint(config, path);
      CHECK(has(what, "it is read by " + field.reader.who));
      for (const std::string& key : field.reader.by) CHECK(has(what, key + "="));
      // With its default it is accepted: --print-config prints every key.
      CHECK(complaint(config_of(row.unread, path, field.get(Config{})), path).empty());
    }
  CHECK(seen == rows().size());
}

TEST_CASE("what resolve() fills in is a configuration again") {
  for (const std::vector<std::string>& sets : std::vector<std::vector<std::string>>{
           {"data.name=random"},
           {"data.name=random", "compression.level=L0", "compression.recipes=false"},
           {"data.name=random", "compression.level=CB1"},
           {"data.name=random", "compression.memory_budget=1/6"},
           {"data.name=random", "compression.policy=acgc", "compression.acgc.rule=published"},
           {"data.name=random_tokens", "model.name=gpt2", "model.layers=1"},
           {"data.name=random_tokens", "model.name=bert_tiny", "compression.level=L0"},
           {"data.name=random_graph", "data.nodes=50", "data.edges=90", "model.name=gcn"}}) {
    CAPTURE(sets[1 % sets.size()]);
    Json document = Json::object();
    apply_sets(document, sets);
    Config config = parse_config(document);
    resolve(config);
    for (const UnreadKey& key : unread_keys(config)) FAIL_CHECK(key.path, ": ", key.what);
  }
}

TEST_CASE("the published rule shows what it does, and refuses another rounding") {
  const auto with = [](const char* rounding) {
    Config config = config_of(
        {"data.name=random", "compression.policy=acgc", "compression.acgc.rule=published"},
        "compression.advanced.rounding", rounding);
    resolve(config);
    return config.compression;
  };
  CHECK(with("auto").rounding == compress::Rounding::nearest);
  CHECK_FALSE(with("auto").recipes);
  CHECK_THROWS_WITH_AS(with("stochastic"), doctest::Contains("compression.acgc.rule published"),
                       ConfigError);
}

TEST_CASE("--set is held to what the run reads, and may leave the file's keys without a reader") {
  const TempFolder folder;
  const std::string file = folder / "c.json";
  const auto load = [&](const char* text, const std::vector<std::string>& sets) {
    write_file(file, text);
    return load_config(file, sets);
  };
  const char* packed = R"({"compression": {"bits": 4, "advanced": {"group_size": 64}}})";
  CHECK_NOTHROW(load(packed, {"compression.level=L0"}));
  CHECK_THROWS_WITH_AS(load(packed, {"compression.level=L0", "compression.entropy=true"}),
                       doctest::Contains("compression.entropy: expected false"), ConfigError);
  CHECK_THROWS_WITH_AS(load(R"({"compression": {"bits": 0, "advanced": {"group_size": 64}}})", {}),
                       doctest::Contains("compression.advanced.group_size"), ConfigError);
  CHECK_NOTHROW(load(R"({"compression": {"bits": 0, "advanced": {"group_size": 64}}})",
                     {"compression.level=L1"}));
  CHECK_THROWS_WITH_AS(load("{}", {R"(data={"split": [0.5, 0.2]})"}),
                       doctest::Contains("data.split: expected null, the default, since nothing "
                                         "reads it with data.name=fashion_mnist; it is read by "
                                         "graphs, image_folder, image_list, tensors, csv, and "
                                         "jsonl with encoders; got [0.5,0.2]"),
                       ConfigError);
}

TEST_CASE("names may be spelled with - and in upper case") {
  CHECK(config_of({}, "data.name", "Fashion-MNIST").data.name == "fashion_mnist");
  CHECK(config_of({}, "data.name", "CIFAR-10").data.name == "cifar10");
  CHECK(config_of({}, "optim.name", "AdamW").optim.name == "adamw");
  CHECK(config_of({}, "model.name", "ResNet-20").model.name == "resnet20");
}

}  // namespace frugal::apps
