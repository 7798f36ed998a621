// Studies of what compression does: `frugal-lab` beside `frugal`.
#include "apps/cli/command_line.h"
#include "apps/cli/given_path.h"
#include "apps/cli/version.h"
#include "apps/config/keys/config_error.h"
#include "core/spin.h"
#include "lab/commands.h"

namespace frugal::lab {
namespace {

using apps::add_sets;
using apps::command;
using apps::one_each;

void add_studies(CLI::App& app) {
  static LabArguments a;
  const auto common = [](CLI::App* sub) { return apps::add_repeats(sub, a.json, a.repeats); };
  CLI::App* spmm = common(command(app, "spmm", "Sums over the neighbours of a random graph"));
  spmm->add_option("--nodes", a.nodes, "Size of the graph, as dense as ogbn-arxiv")
      ->check(apps::whole(1, 1 << 26))
      ->capture_default_str();
  apps::add_place(spmm, a.device, a.dtype);
  spmm->callback([] { study_spmm(a); });
  CLI::App* gradient = common(
      command(app, "gradient", "Bias and variance of the gradient by how activations are kept"));
  gradient->add_option("CONFIG", a.config, "Configuration, JSON")->required();
  gradient->add_option("--train-steps", a.train_steps, "Plain training before")
      ->check(apps::whole(0, 1000000))
      ->capture_default_str();
  gradient->add_option("--batches", a.batches, "Minibatches whose variance is the unit")
      ->check(apps::whole(8, 100000))
      ->capture_default_str();
  one_each(gradient->add_option("--bits", a.bits, "Widths, as 4,3,2"))
      ->delimiter(',')
      ->check(apps::whole(1, 16))
      ->capture_default_str();
  gradient->add_flag("--policies", a.policies,
                     "Compare policies, at 2 bits unless --bits says more");
  gradient->add_flag(
      "--layers", a.layers,
      "Gradients of each layer, compressed as CONFIG says, with its bits unless --bits says more");
  gradient->add_option("--whole", a.whole, "With --layers: ops whose tensors stay whole, as a,b")
      ->delimiter(',');
  add_sets(gradient, a.sets);
  gradient->callback([gradient] {
    if (a.repeats != 0 && a.repeats < 8)
      throw apps::ConfigError("", "--repeats: expected at least 8 draws");
    if (a.layers && a.policies)
      throw apps::ConfigError("", "--layers: expected no --policies beside it");
    if (!a.layers && !a.whole.empty())
      throw apps::ConfigError("", "--whole: expected --layers beside it");
    const bool usual_bits = gradient->get_option("--bits")->count() == 0;
    if (a.layers && usual_bits) a.bits.clear();
    if (a.policies && usual_bits) a.bits = {2};
    if (a.layers) return study_layers(a);
    if (!a.policies) return study_gradient(a);
    study_policies(a);
  });
  CLI::App* sensitivity = common(command(
      app, "sensitivity", "How well training measures which tensors need bits, at L2 to L3"));
  sensitivity->add_option("CONFIG", a.config, "Configuration, JSON")->required();
  sensitivity->add_option("--train-steps", a.train_steps, "Plain training before")
      ->check(apps::whole(0, 1000000))
      ->capture_default_str();
  sensitivity
      ->add_option("--references", a.references, "Measurements with whole batches to compare with")
      ->check(apps::whole(1, 100000))
      ->capture_default_str();
  add_sets(sensitivity, a.sets);
  sensitivity->callback([] {
    if (a.repeats != 0 && a.repeats < 8)
      throw apps::ConfigError("", "--repeats: expected at least 8 draws");
    study_sensitivity(a);
  });
  CLI::App* bounds = common(
      command(app, "bounds", "Error-bounded codecs at AC-GC's bounds, and whether they hold"));
  bounds->add_option("CONFIG", a.config, "Configuration, JSON")->required();
  bounds->add_option("--train-steps", a.train_steps, "Plain training before")
      ->check(apps::whole(0, 1000000))
      ->capture_default_str();
  add_sets(bounds, a.sets);
  bounds->callback([] { study_bounds(a); });
  CLI::App* tokens = command(app, "tokens", "Speed and ids of a tokenizer");
  tokens->add_option("FILE", a.config, "The tokenizer, tokenizer.json or tokenizer.model")
      ->required();
  tokens->add_option("TEXTS", a.texts, "A text, or JSON strings in the lines of a .jsonl")
      ->required();
  tokens->add_option("--out", a.out, "A file for the ids: JSON lines")->check(apps::check_place);
  tokens->add_flag("--json", a.json, "Print JSON");
  tokens->callback([] { study_tokens(a); });
  CLI::App* generate =
      common(command(app, "generate", "The time of a generated token, with weights in few bits"));
  generate->add_option("--tokens", a.tokens, "Length of a text")
      ->check(apps::whole(1, 2000))
      ->capture_default_str();
  generate->add_option("--layers", a.network_layers, "Depth of a decoder as wide as SmolLM2-135M")
      ->check(apps::whole(1, 1000))
      ->capture_default_str();
  generate->callback([] { study_generate(a); });
  CLI::App* chat = command(app, "chat", "Conversations by a folder's chat template, and answers");
  chat->add_option("FOLDER", a.config, "A model's: tokenizer_config.json, chat_template.jinja")
      ->required();
  chat->add_option("CONVERSATIONS", a.texts, "JSON lines with messages")->required();
  chat->callback([] { study_chat(a); });
}

}  // namespace
}  // namespace frugal::lab

int main(int argc, char** argv) {
  frugal::limit_spinning(argv);
  CLI::App app("Studies of what compression does to activations and gradients", "frugal-lab");
  app.set_version_flag("--version", std::string("frugal-lab ") + frugal::apps::kVersion);
  return frugal::apps::run_command_line(app, argc, argv, frugal::lab::add_studies);
}
