// Each name that the schema lets through stands for something, where it is read.
#include "apps/config/keys/value_named.h"

#include <doctest/doctest.h>

#include "apps/cli/commands.h"
#include "apps/config/data/data_kinds.h"
#include "apps/config/make_choice.h"
#include "apps/config/make_model.h"
#include "apps/config/make_optimizer.h"
#include "apps/config/make_task.h"
#include "apps/config/resolve.h"

namespace frugal::apps {
namespace {

// A key, what makes a run that reads it, and who reads it.
struct NamedKey {
  const char* path;
  std::vector<std::string> sets;
  void (*read)(Config&);
};

void read_model(Config& config) {
  resolve(config);
  make_model(config, batch_spec(config), kMeta);
}
void read_task(Config& config) {
  resolve(config);
  make_task(config);
}
void read_policy(Config& config) { make_policy(make_choice(config.compression), kMeta, 0); }
void read_schedule(Config& config) { make_schedule(config, 10, 100); }
void read_encoding(Config& config) { encoding_of(config); }
void read_exif(Config& config) { exif_of(config); }
void read_layout(Config& config) { data_traits(config); }

std::vector<NamedKey> named_keys() {
  const std::vector<std::string> images = {"data.name=random"},
                                 graph = {"data.name=random_graph", "data.nodes=50",
                                          "data.edges=90"};
  const auto with = [](std::vector<std::string> sets, const std::string& more) {
    sets.push_back(more);
    return sets;
  };
  const std::vector<std::string> actnn = {"compression.policy=actnn", "compression.level=L3"},
                                 acgc = {"compression.policy=acgc"};
  return {{"model.shortcut", with(images, "model.name=resnet20"), read_model},
          {"model.stem", with(images, "model.name=resnet18"), read_model},
          {"model.jump", with(graph, "model.name=gcn"), read_model},
          {"model.aggregation", with(graph, "model.name=sage"), read_model},
          {"model.box_loss",
           {"data.name=random_boxes", "data.shape=[64,96,3]", "model.name=retinanet_resnet50_fpn"},
           read_model},
          {"train.loss", {"data.name=random_masks", "model.name=unet"}, read_task},
          {"compression.policy", {}, read_policy},
          {"compression.gact.solver", {"compression.level=L2"}, read_policy},
          {"compression.actnn.norms", actnn, read_policy},
          {"compression.actnn.gradients", actnn, read_policy},
          {"compression.acgc.rule", acgc, read_policy},
          {"compression.acgc.count", acgc, read_policy},
          {"compression.acgc.codec", acgc, read_policy},
          {"compression.advanced.signs", {}, read_policy},
          {"compression.advanced.group_axis", {}, read_policy},
          {"compression.advanced.recomputed", {"train.checkpointing=true"}, read_policy},
          {"compression.advanced.rounding", {}, read_policy},
          {"schedule.name", {"schedule.milestones=[1]"}, read_schedule},
          {"data.encoding", {"data.name=csv"}, read_encoding},
          {"data.exif", images, read_exif},
          {"data.layout", {"data.name=tensors"}, read_layout}};
}

// The names that the schema has for a key.
std::vector<std::string> names_of(std::string path) {
  Json node = config_schema();
  while (!path.empty()) {
    const size_t dot = path.find('.');
    node = Json(node.at("properties").at(path.substr(0, dot)));
    path = dot == std::string::npos ? "" : path.substr(dot + 1);
  }
  std::vector<std::string> names;
  for (const Json& name : node.at("enum"))
    if (name.is_string()) names.push_back(name.get<std::string>());
  return names;
}

}  // namespace

TEST_CASE("each name that the schema has for a key means something where it is read") {
  for (const NamedKey& key : named_keys()) {
    CAPTURE(key.path);
    const std::vector<std::string> names = names_of(key.path);
    CHECK(names.size() >= 2);
    for (const std::string& name : names) {
      CAPTURE(name);
      Json document = Json::object();
      apply_sets(document, key.sets);
      apply_set(document, std::string(key.path) + "=" + name);
      Config config = parse_config(document);
      CHECK_NOTHROW(key.read(config));
    }
  }
}

TEST_CASE("a name that nobody reads is no other one") {
  CHECK(value_named<int>("b", {{"a", 1}, {"b", 2}}) == 2);
  CHECK_THROWS_WITH_AS(value_named<int>("c", {{"a", 1}, {"b", 2}}), "no value is named c",
                       InternalError);
  CHECK(views_named("none") == data::Views::centre);
  CHECK(views_named("ten_crop") == data::Views::ten_crop);
  CHECK_THROWS_AS(views_named("five_crop"), InternalError);
  Config config;
  config.model.name = "resnet20";
  config.data.name = "random";
  config.model.options["shortcut"] = "C";
  CHECK_THROWS_WITH_AS(read_model(config), "model.shortcut: expected one of A, B, got \"C\"",
                       ConfigError);
  config = {};
  config.schedule.name = "exponential";
  CHECK_THROWS_WITH_AS(read_schedule(config),
                       doctest::Contains("schedule.name: expected one of constant, step"),
                       ConfigError);
}

}  // namespace frugal::apps
