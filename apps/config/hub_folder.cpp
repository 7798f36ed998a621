#include "apps/config/hub_folder.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <set>

#include "apps/config/adapter_files.h"
#include "apps/config/keys/value_schema.h"
#include "apps/config/make_model.h"
#include "core/words/quoted.h"
#include "models/registry.h"
#include "models/zoo/bert.h"
#include "models/zoo/decoder.h"
#include "models/zoo/gpt2.h"
#include "models/zoo/keys.h"

namespace frugal::apps {
namespace {

namespace fs = std::filesystem;
using models::DecoderFamily;
using models::DecoderOptions;

constexpr const char* kFile = "config.json";

// Keys on which no result depends that we compute.
constexpr const char* kWithoutEffect[] = {"architectures",
                                          "_name_or_path",
                                          "name_or_path",
                                          "transformers_version",
                                          "torch_dtype",
                                          "dtype",
                                          "model_type",
                                          "use_cache",
                                          "bos_token_id",
                                          "eos_token_id",
                                          "pad_token_id",
                                          "sep_token_id",
                                          "cls_token_id",
                                          "unk_token_id",
                                          "mask_token_id",
                                          "initializer_range",
                                          "initializer_factor",
                                          "auto_map",
                                          "id2label",
                                          "label2id",
                                          "num_labels",
                                          "problem_type",
                                          "finetuning_task",
                                          "task_specific_params",
                                          "output_attentions",
                                          "output_hidden_states",
                                          "output_past",
                                          "return_dict",
                                          "return_dict_in_generate",
                                          "gradient_checkpointing",
                                          "pretraining_tp",
                                          "cache_implementation",
                                          "_attn_implementation",
                                          "attn_implementation",
                                          "_attn_implementation_autoset",
                                          "is_llama_config",
                                          "tokenizer_class",
                                          "prefix",
                                          "chunk_size_feed_forward",
                                          "max_length",
                                          "do_sample",
                                          "temperature",
                                          "top_k",
                                          "top_p",
                                          "repetition_penalty",
                                          "transformers.js_config",
                                          "unsloth_fixed",
                                          "unsloth_version",
                                          "summary_activation",
                                          "summary_first_dropout",
                                          "summary_proj_to_labels",
                                          "summary_type",
                                          "summary_use_proj",
                                          "n_ctx",
                                          "reorder_and_upcast_attn",
                                          "directionality",
                                          "pooler_fc_size",
                                          "pooler_num_attention_heads",
                                          "pooler_num_fc_layers",
                                          "pooler_size_per_head",
                                          "pooler_type",
                                          "torchscript",
                                          "pruned_heads",
                                          "is_encoder_decoder"};

// The entries of an object, of which each must be asked for or be known to have no effect.
class Entries {
 public:
  Entries(const Json& json, std::string file, std::string inside)
      : json_(json), file_(std::move(file)), inside_(std::move(inside)) {}

  [[noreturn]] void fail(const std::string& key, const std::string& why) const {
    throw ConfigError("model.weights",
                      fmt::format("{}: {}{}: {}", in_quotes(file_), inside_, printable(key), why));
  }
  // Null: it is not there, or null.
  const Json* find(const std::string& key) {
    asked_.insert(key);
    const auto found = json_.find(key);
    return found == json_.end() || found->is_null() ? nullptr : &*found;
  }
  bool has(const std::string& key) const { return json_.contains(key); }

  int64_t integer(const std::string& key, std::optional<int64_t> usual = {}) {
    constexpr int64_t kMost = int64_t{1} << 40;
    const Json* value = find(key);
    if (value == nullptr && usual) return *usual;
    if (value == nullptr || !value->is_number_integer() || *value < 0 || *value > kMost)
      fail(key, fmt::format("expected a whole number of 0 or more, got {}", text_of(value)));
    return value->get<int64_t>();
  }
  double number(const std::string& key, std::optional<double> usual = {}) {
    const Json* value = find(key);
    if (value == nullptr && usual) return *usual;
    if (value == nullptr || !value->is_number() || !std::isfinite(value->get<double>()))
      fail(key, fmt::format("expected a number, got {}", text_of(value)));
    return value->get<double>();
  }
  bool flag(const std::string& key, bool usual) {
    const Json* value = find(key);
    if (value == nullptr) return usual;
    if (!value->is_boolean())
      fail(key, fmt::format("expected true or false, got {}", text_of(value)));
    return value->get<bool>();
  }
  std::string text(const std::string& key, const std::string& usual) {
    const Json* value = find(key);
    if (value == nullptr) return usual;
    if (!value->is_string()) fail(key, fmt::format("expected a text, got {}", text_of(value)));
    return value->get<std::string>();
  }
  // Errors: another value than the only one that we compute.
  void must_be(const std::string& key, const Json& only) {
    const Json* value = find(key);
    if (value != nullptr && *value != only)
      fail(key, fmt::format("expected {}, which is what we compute, got {}", only.dump(),
                            text_of(value)));
  }
  void ignore(const std::string& key) { asked_.insert(key); }

  // Errors: an entry that nobody asked for.
  void finish() const {
    for (const auto& [key, value] : json_.items()) {
      if (value.is_null() || asked_.contains(key)) continue;
      const bool harmless =
          inside_.empty() && std::any_of(std::begin(kWithoutEffect), std::end(kWithoutEffect),
                                         [&key = key](const char* name) { return key == name; });
      if (!harmless)
        fail(key, fmt::format("expected no such key, or null: what it changes is not known here; "
                              "got {}",
                              text_of(&value)));
    }
  }

 private:
  static std::string text_of(const Json* value) {
    return value == nullptr ? "none" : printable(value->dump(), 60);
  }
  const Json& json_;
  std::string file_, inside_;
  std::set<std::string> asked_;
};

// What config.json means where it leaves out a key.
struct Usual {
  const char* type;
  const char* architecture;
  DecoderFamily family;
  int64_t kv_heads, head_size;  // 0: as many as heads; width / heads
  int64_t positions;
  double base;
  std::optional<int64_t> window;
};
constexpr Usual kFamilies[] = {
    {"llama", "LlamaForCausalLM", DecoderFamily::llama, 0, 0, 2048, 1e4, {}},
    {"mistral", "MistralForCausalLM", DecoderFamily::mistral, 8, 0, 131072, 1e4, 4096},
    {"qwen2", "Qwen2ForCausalLM", DecoderFamily::qwen2, 32, 0, 32768, 1e4, 4096},
    {"qwen3", "Qwen3ForCausalLM", DecoderFamily::qwen3, 32, 128, 32768, 1e4, 4096},
    {"smollm3", "SmolLM3ForCausalLM", DecoderFamily::smollm3, 4, 0, 32768, 2e6, {}},
    {"gemma2", "Gemma2ForCausalLM", DecoderFamily::gemma2, 4, 256, 8192, 1e4, 4096},
    {"gemma3_text", "Gemma3ForCausalLM", DecoderFamily::gemma3, 4, 256, 131072, 1e6, 4096},
};
const Usual& usual_of(DecoderFamily family) {
  return *std::find_if(std::begin(kFamilies), std::end(kFamilies),
                       [&](const Usual& each) { return each.family == family; });
}

// ---- positions

// The keys of one set of rotary parameters. `theta`: where the set gives none.
void add_scaling(Json& keys, const Json& json, const std::string& file, const std::string& inside,
                 double theta, int64_t positions) {
  Entries rope(json, file, inside);
  const std::string type = rope.text("rope_type", rope.text("type", "default"));
  constexpr std::array kTypes = {"default", "linear", "dynamic", "llama3", "yarn"};
  if (std::find(kTypes.begin(), kTypes.end(), type) == kTypes.end())
    rope.fail("rope_type", fmt::format("expected default, linear, dynamic, llama3 or yarn, got {}",
                                       in_quotes(type)));
  keys["rope_base"] = rope.number("rope_theta", theta);
  rope.must_be("partial_rotary_factor", 1.0);
  if (type != "default") keys["rope_factor"] = rope.number("factor");
  const auto length = [&](std::optional<double> usual) {
    keys["rope_first_length"] = rope.number("original_max_position_embeddings", usual);
  };
  const auto most = static_cast<double>(positions);
  if (type == "linear") {
    rope.ignore("original_max_position_embeddings");
  } else if (type == "dynamic") {  // the positions of the file are those before
    rope.ignore("original_max_position_embeddings");
    keys["rope_first_length"] = most;
    keys["max_positions"] = static_cast<int64_t>(most * keys["rope_factor"].get<double>());
  } else if (type == "llama3") {
    length({});
    keys["rope_low"] = rope.number("low_freq_factor");
    keys["rope_high"] = rope.number("high_freq_factor");
  } else if (type == "yarn") {
    length(most);
    keys["rope_most_turns"] = rope.number("beta_fast", 32);
    keys["rope_least_turns"] = rope.number("beta_slow", 1);
    keys["rope_whole_pairs"] = rope.flag("truncate", true);
    const double factor = keys["rope_factor"].get<double>();
    const auto gain = [&](double scale) {
      return factor <= 1 ? 1.0 : 0.1 * scale * std::log(factor) + 1;
    };
    const double scale = rope.number("mscale", 0), of_all = rope.number("mscale_all_dim", 0);
    const double usual = scale != 0 && of_all != 0 ? gain(scale) / gain(of_all) : gain(1);
    keys["rope_gain"] = rope.number("attention_factor", usual);
  }
  if (type != "default") keys["rope_scaling"] = type;
  rope.finish();
}

void add_positions(Json& keys, Entries& all, const Usual& usual, const std::string& file,
                   int64_t positions) {
  const double theta = all.number("rope_theta", usual.base);
  all.must_be("partial_rotary_factor", 1.0);
  all.must_be("rope_interleaved", false);
  const double local = all.number("rope_local_base_freq", 1e4);
  const bool by_type = usual.family == DecoderFamily::gemma3;
  const char* name = "rope_parameters";
  const Json* rope = all.find(name);
  const Json* scaling = all.find("rope_scaling");
  if (rope == nullptr) rope = scaling, name = "rope_scaling";
  if (by_type) keys["rope_local_base"] = local;
  if (rope == nullptr) {
    keys["rope_base"] = theta;
    return;
  }
  if (!rope->is_object()) all.fail(name, "expected an object");
  const std::string inside = std::string(name) + ".";
  if (!rope->contains("full_attention") && !rope->contains("sliding_attention"))
    return add_scaling(keys, *rope, file, inside, theta, positions);
  if (!by_type) all.fail(name, "expected one set of parameters for all layers");
  Entries types(*rope, file, inside);
  const Json none = Json::object();
  const Json *full = types.find("full_attention"), *sliding = types.find("sliding_attention");
  types.finish();
  for (const Json* each : {full, sliding})
    if (each != nullptr && !each->is_object()) all.fail(name, "expected objects");
  add_scaling(keys, full == nullptr ? none : *full, file, inside + "full_attention.", theta,
              positions);
  Json near = Json::object();
  add_scaling(near, sliding == nullptr ? none : *sliding, file, inside + "sliding_attention.",
              local, positions);
  if (near.contains("rope_scaling"))
    all.fail(name, "expected the rope_type default for sliding_attention");
  keys["rope_local_base"] = near["rope_base"];
}

// ---- which layers have a window, and which turn positions
void add_layers(Json& keys, Entries& all, const Usual& usual, int64_t layers) {
  const auto family = usual.family;
  const bool qwen = family == DecoderFamily::qwen2 || family == DecoderFamily::qwen3;
  const bool smol = family == DecoderFamily::smollm3, gemma = family >= DecoderFamily::gemma2;
  std::vector<int64_t> turns(static_cast<size_t>(layers), 1), windows(turns.size(), 0);
  if (smol) {
    const int64_t every = all.integer("no_rope_layer_interval", 4);
    for (int64_t i = 0; i < layers; ++i)
      turns[static_cast<size_t>(i)] = every == 0 || (i + 1) % every != 0 ? 1 : 0;
    if (const Json* list = all.find("no_rope_layers"); list != nullptr) {
      if (!list->is_array() || list->size() < turns.size())
        all.fail("no_rope_layers", fmt::format("expected 0 or 1 for each of {} layers", layers));
      for (size_t i = 0; i < turns.size(); ++i) {
        if (!(*list)[i].is_number_integer() || ((*list)[i] != 0 && (*list)[i] != 1))
          all.fail("no_rope_layers", fmt::format("expected 0 or 1 for each of {} layers", layers));
        turns[i] = (*list)[i].get<int64_t>();
      }
    }
    keys["rope_layers"] = turns;
  }
  // A family without windows has no such keys, so that one of them is not understood.
  if (family == DecoderFamily::llama) return;
  if (smol) all.ignore("max_window_layers");
  if (gemma) all.ignore("sliding_window_size");
  if (qwen) all.must_be("use_mrope", false);
  const bool may_slide = !(qwen || smol) || all.flag("use_sliding_window", false);
  int64_t window = 0;
  if (all.has("sliding_window"))
    window = all.integer("sliding_window", 0);
  else if (may_slide)
    window = usual.window.value_or(0);
  if (!may_slide) window = 0;
  const int64_t first = qwen ? all.integer("max_window_layers", 28) : 0;
  const int64_t pattern =
      family == DecoderFamily::gemma3
          ? all.integer("sliding_window_pattern", all.integer("_sliding_window_pattern", 6))
          : 2;
  for (int64_t i = 0; i < layers; ++i)
    windows[static_cast<size_t>(i)] = gemma  ? (pattern == 0 || (i + 1) % pattern != 0 ? 1 : 0)
                                      : smol ? 1 - turns[static_cast<size_t>(i)]
                                             : (i >= first ? 1 : 0);
  if (const Json* list = all.find("layer_types"); list != nullptr) {
    if (!list->is_array() || list->size() != windows.size())
      all.fail("layer_types", fmt::format("expected an entry for each of {} layers", layers));
    for (size_t i = 0; i < windows.size(); ++i) {
      if ((*list)[i] != "full_attention" && (*list)[i] != "sliding_attention")
        all.fail("layer_types", fmt::format("expected full_attention or sliding_attention, got {}",
                                            printable((*list)[i].dump())));
      windows[i] = (*list)[i] == "sliding_attention" ? 1 : 0;
    }
  }
  keys["attention_window"] = window;
  if (window > 0) keys["window_layers"] = windows;
}

std::string activation_of(Entries& all, const char* key, const char* usual) {
  const std::string name = all.text(key, usual);
  if (name == "silu" || name == "swish") return "silu";
  if (name == "gelu") return "gelu";
  if (name == "gelu_pytorch_tanh" || name == "gelu_new" || name == "gelu_fast") return "gelu_tanh";
  all.fail(key, fmt::format("expected silu, gelu or gelu_pytorch_tanh, got {}", in_quotes(name)));
}

Json decoder_keys(Entries& all, const Usual& usual, const std::string& file) {
  const bool gemma = usual.family >= DecoderFamily::gemma2;
  const bool gemma2 = usual.family == DecoderFamily::gemma2;
  Json keys = {{"name", "decoder"}, {"family", usual.type}};
  const int64_t layers = all.integer("num_hidden_layers"),
                heads = all.integer("num_attention_heads");
  // What follows takes memory for each layer, before the values of keys are checked.
  constexpr auto kMostLayers = static_cast<int64_t>(models::keys::kLayers.range.most);
  if (layers > kMostLayers)
    all.fail("num_hidden_layers",
             fmt::format("expected at most {} layers, got {}", kMostLayers, layers));
  keys["layers"] = layers;
  keys["width"] = all.integer("hidden_size");
  keys["heads"] = heads;
  const int64_t shared =
      usual.kv_heads > 0 && !all.has("num_key_value_heads") ? usual.kv_heads : heads;
  keys["kv_heads"] = all.integer("num_key_value_heads", shared);
  keys["head_size"] = all.integer("head_dim", usual.head_size);
  keys["feed_forward"] = all.integer("intermediate_size");
  const int64_t positions = all.integer("max_position_embeddings", usual.positions);
  keys["max_positions"] = positions;
  keys["vocab_size"] = all.integer("vocab_size");
  keys["norm_eps"] = all.number("rms_norm_eps", 1e-6);
  keys["attention_dropout"] = all.number("attention_dropout", 0);
  if (gemma) all.ignore("hidden_act");
  keys["activation"] = activation_of(all, gemma ? "hidden_activation" : "hidden_act",
                                     gemma ? "gelu_pytorch_tanh" : "silu");
  keys["tied"] = all.flag("tie_word_embeddings", gemma || usual.family == DecoderFamily::smollm3);
  if (usual.family == DecoderFamily::qwen2)
    all.ignore("attention_bias");
  else
    keys["attention_bias"] = all.flag("attention_bias", false);
  keys["mlp_bias"] = all.flag("mlp_bias", false);
  add_positions(keys, all, usual, file, positions);
  add_layers(keys, all, usual, layers);
  if (gemma) {
    keys["attention_scale"] = 1 / std::sqrt(all.number("query_pre_attn_scalar", 256));
    const auto cap = [&](const char* key, double own) {
      return all.has(key) ? all.number(key, 0) : gemma2 ? own : 0;
    };
    keys["attention_cap"] = cap("attn_logit_softcapping", 50);
    keys["logit_cap"] = cap("final_logit_softcapping", 30);
    all.must_be("use_bidirectional_attention", false);
  }
  return keys;
}

// ---- weights that a library has packed

// The format in which frozen weights keep the bytes of the folder's; empty: they are whole there.
std::string packed_format(Entries& all, const std::string& file) {
  const Json* const given = all.find("quantization_config");
  if (given == nullptr) return "";
  if (!given->is_object()) all.fail("quantization_config", "expected an object");
  Entries own(*given, file, "quantization_config.");
  own.must_be("quant_method", "bitsandbytes");
  const bool four = own.flag("load_in_4bit", false), eight = own.flag("load_in_8bit", false);
  if (four == eight) own.fail("load_in_4bit", "expected either load_in_4bit or load_in_8bit");
  for (const char* key :
       {"_load_in_4bit", "_load_in_8bit", "bnb_4bit_compute_dtype", "llm_int8_skip_modules",
        "llm_int8_threshold", "llm_int8_enable_fp32_cpu_offload", "modules_to_not_convert"})
    own.ignore(key);
  own.must_be("llm_int8_has_fp16_weight", false);
  own.must_be("bnb_4bit_quant_storage", "uint8");
  const std::string type = own.text("bnb_4bit_quant_type", "fp4");
  if (type != "nf4" && type != "fp4")
    own.fail("bnb_4bit_quant_type", "expected nf4 or fp4, got " + in_quotes(type));
  const bool twice = own.flag("bnb_4bit_use_double_quant", false);
  own.finish();
  return eight ? "int8" : type == "nf4" && twice ? "nf4" : "";
}

// ---- networks of the zoo with layers of their own
Json gpt2_keys(Entries& all) {
  Json keys = {{"name", "gpt2"}};
  keys["layers"] = all.integer("n_layer");
  keys["width"] = all.integer("n_embd");
  keys["heads"] = all.integer("n_head");
  if (all.find("n_inner") != nullptr) keys["feed_forward"] = all.integer("n_inner");
  keys["max_positions"] = all.integer("n_positions", 1024);
  keys["vocab_size"] = all.integer("vocab_size");
  const double dropout = all.number("resid_pdrop", 0.1);
  keys["dropout"] = dropout;
  all.must_be("embd_pdrop", dropout);
  keys["attention_dropout"] = all.number("attn_pdrop", 0.1);
  const std::string act = activation_of(all, "activation_function", "gelu_new");
  if (act != "gelu_tanh") all.fail("activation_function", "expected gelu_new, got " + act);
  all.must_be("layer_norm_epsilon", 1e-5);
  all.must_be("scale_attn_weights", true);
  all.must_be("scale_attn_by_inverse_layer_idx", false);
  all.must_be("add_cross_attention", false);
  keys["tied"] = all.flag("tie_word_embeddings", true);
  return keys;
}

// BERT and RoBERTa: how they differ stands behind `roberta`.
Json bert_keys(Entries& all, bool roberta) {
  Json keys = {{"name", roberta ? "roberta_base" : "bert_base"}};
  keys["layers"] = all.integer("num_hidden_layers");
  keys["width"] = all.integer("hidden_size");
  keys["heads"] = all.integer("num_attention_heads");
  keys["feed_forward"] = all.integer("intermediate_size");
  keys["max_positions"] = all.integer("max_position_embeddings", 512);
  keys["vocab_size"] = all.integer("vocab_size");
  const double dropout = all.number("hidden_dropout_prob", 0.1);
  keys["dropout"] = dropout;
  all.must_be("classifier_dropout", dropout);
  keys["attention_dropout"] = all.number("attention_probs_dropout_prob", 0.1);
  all.must_be("hidden_act", "gelu");
  // The defaults of the library's class are BERT's, also for RoBERTa.
  const auto number_must_be = [&](const char* key, double usual, double only) {
    if (const double value = all.number(key, usual); value != only)
      all.fail(key, fmt::format("expected {}, which is what we compute, got {}", only, value));
  };
  number_must_be("layer_norm_eps", 1e-12, roberta ? 1e-5 : 1e-12);
  number_must_be("type_vocab_size", 2, roberta ? 1 : 2);
  if (roberta) number_must_be("pad_token_id", 1, 1);  // positions count from the id behind it
  all.must_be("position_embedding_type", "absolute");
  all.must_be("is_decoder", false);
  all.must_be("add_cross_attention", false);
  all.must_be("tie_word_embeddings", true);
  return keys;
}

Json distilbert_keys(Entries& all) {
  Json keys = {{"name", "distilbert_base"}};
  keys["layers"] = all.integer("n_layers", 6);
  keys["width"] = all.integer("dim", 768);
  keys["heads"] = all.integer("n_heads", 12);
  keys["feed_forward"] = all.integer("hidden_dim", 3072);
  keys["max_positions"] = all.integer("max_position_embeddings", 512);
  keys["vocab_size"] = all.integer("vocab_size", 30522);
  keys["dropout"] = all.number("dropout", 0.1);
  keys["attention_dropout"] = all.number("attention_dropout", 0.1);
  all.must_be("seq_classif_dropout", 0.2);
  all.ignore("qa_dropout");  // belongs to a head that we do not have
  all.must_be("activation", "gelu");
  all.must_be("sinusoidal_pos_embds", false);
  all.must_be("tie_weights_", true);
  all.must_be("tie_word_embeddings", true);
  return keys;
}

std::string file_of(const std::string& folder) { return (fs::path(folder) / kFile).string(); }

// Which key of a document names the folder; null: none does.
const Json* folder_in(const Json& document) {
  const auto model = document.find("model");
  if (model == document.end() || !model->is_object()) return nullptr;
  const auto weights = model->find("weights");
  return weights != model->end() && weights->is_string() ? &*weights : nullptr;
}

}  // namespace

bool is_hub_folder(const std::string& folder) {
  std::error_code none;
  if (!fs::is_directory(folder, none) || !fs::is_regular_file(file_of(folder), none)) return false;
  const Json json = read_json(file_of(folder));
  return json.is_object() && json.contains("model_type");
}

Json hub_keys(const std::string& folder) {
  const std::string file = file_of(folder);
  const Json json = read_json(file);
  Entries all(json, file, "");
  if (!json.is_object()) all.fail("config.json", "expected an object");
  const std::string type = all.text("model_type", "");
  const auto usual = std::find_if(std::begin(kFamilies), std::end(kFamilies),
                                  [&](const Usual& each) { return type == each.type; });
  Json keys;
  if (usual != std::end(kFamilies)) {
    keys = decoder_keys(all, *usual, file);
  } else if (type == "gpt2") {
    keys = gpt2_keys(all);
  } else if (type == "bert" || type == "roberta") {
    keys = bert_keys(all, type == "roberta");
  } else if (type == "distilbert") {
    keys = distilbert_keys(all);
  } else {
    std::vector<std::string> known{"gpt2", "bert", "roberta", "distilbert"};
    for (const Usual& each : kFamilies) known.emplace_back(each.type);
    all.fail("model_type",
             fmt::format("expected one of {}, got {}", fmt::join(known, ", "), in_quotes(type)));
  }
  packed_format(all, file);
  if (all.has("text_config") || all.has("vision_config"))
    all.fail("model_type", "expected a model of texts alone, got parts for other data");
  all.finish();
  return keys;
}

KeysOfFile expand_hub_folder(Json& document) {
  const Json* const folder = folder_in(document);
  if (folder == nullptr) return {};
  Json& model = document["model"];
  if (!is_hub_folder(folder->get<std::string>())) {
    std::error_code none;
    const auto path = folder->get<std::string>();
    if (model.contains("name")) return {};
    if (is_adapter(path))
      throw ConfigError("model.weights",
                        fmt::format("expected the weights of a network, got {}, which has an "
                                    "adapter: model.adapter names it, beside the network's weights",
                                    in_quotes(path, 300)));
    if (fs::is_directory(path, none))
      throw ConfigError(
          "model.weights",
          fmt::format("expected a folder whose {} has a model_type, since the configuration has no "
                      "model.name; got {}: put that file there, or name the network",
                      kFile, in_quotes(path, 300)));
    return {};
  }
  // The configuration of a run has all keys, and does not depend on the folder any more.
  if (model.contains("name") && model.contains("layers") && model.contains("family") &&
      model.contains("rope_base"))
    return {};
  const Json keys = hub_keys(folder->get<std::string>());
  const std::string file = file_of(folder->get<std::string>());  // `folder` may move below
  if (model.contains("name")) {
    const Json &given = model["name"], &own = keys["name"];
    // Other sizes of one kind: bert_tiny beside bert_base.
    const auto kind = [](const Json& name) {
      const std::string text = name.is_string() ? name.get<std::string>() : "";
      return text.substr(0, text.find('_'));
    };
    if (given != own && kind(given) != kind(own))
      throw ConfigError(
          "model.name",
          fmt::format("expected {} for the folder {}, got {}", own.get<std::string>(),
                      in_quotes(folder->get<std::string>()), printable(given.dump())));
  }
  KeysOfFile added{file, {}};
  for (const auto& [key, value] : keys.items()) {
    if (model.contains(key)) continue;
    model[key] = value;
    added.paths.push_back("model." + key);
  }
  // Frozen weights of an adapter stay as the folder has them.
  const auto adapter = document.find("adapter");
  const bool adapts = adapter != document.end() && adapter->is_object() &&
                      adapter->value("type", Json("none")) != "none";
  if (!adapts || model.contains("frozen")) return added;
  const Json json = read_json(file);
  Entries all(json, file, "");
  if (const std::string format = packed_format(all, file); !format.empty())
    model["frozen"] = format;
  return added;
}

void remove_hub_keys(Json& document, const std::string& folder) {
  const auto model = document.find("model");
  if (model == document.end() || !model->is_object()) return;
  const Json keys = hub_keys(folder);
  for (const auto& [key, value] : keys.items()) model->erase(key);
}

DecoderOptions decoder_options(const ModelConfig& model) {
  DecoderOptions options;
  models::Options given = model.options;
  if (model.vocab_size) given["vocab_size"] = *model.vocab_size;
  models::set_options(options, DecoderOptions::list(), given);
  return options;
}

namespace {

// Do both describe one network?
bool is_same(const DecoderOptions& a, const DecoderOptions& b) {
  const auto numbers = [](const DecoderOptions& o) {
    const double family_cap = o.family == DecoderFamily::gemma2 ? 1 : 0;
    std::vector<double> all{
        static_cast<double>(o.family),
        static_cast<double>(o.layers),
        static_cast<double>(o.hidden),
        static_cast<double>(o.heads),
        static_cast<double>(o.key_heads()),
        static_cast<double>(o.channels()),
        static_cast<double>(o.inner_width()),
        static_cast<double>(o.vocab_size),
        o.eps,
        static_cast<double>(o.activation.value_or(o.is_gemma() ? Gate::gelu_tanh : Gate::silu)),
        static_cast<double>(o.is_tied()),
        static_cast<double>(o.attention_bias),
        static_cast<double>(o.mlp_bias),
        o.attention_cap.value_or(50 * family_cap),
        o.cap.value_or(30 * family_cap)};
    const double scale = o.attention_scale > 0 ? o.attention_scale
                                               : 1 / std::sqrt(static_cast<double>(o.channels()));
    all.push_back(std::round(scale * 1e12));
    for (int64_t i = 0; i < o.layers; ++i) {
      const RotaryOptions rotary = o.rotary_of(i);
      all.push_back(static_cast<double>(o.window_of(i)));
      all.push_back(static_cast<double>(o.turns(i)));
      all.insert(all.end(), {static_cast<double>(rotary.scaling), rotary.base, rotary.gain});
      if (rotary.scaling == RotaryOptions::Scaling::none) continue;
      all.push_back(rotary.factor);
      if (rotary.scaling == RotaryOptions::Scaling::linear) continue;
      all.insert(all.end(), {rotary.first_length, rotary.low, rotary.high, rotary.most_turns,
                             rotary.least_turns, static_cast<double>(rotary.whole_pairs)});
    }
    return all;
  };
  return numbers(a) == numbers(b);
}

Json rope_json(const RotaryOptions& r) {
  using Scaling = RotaryOptions::Scaling;
  if (r.scaling == Scaling::none) return nullptr;
  constexpr const char* kTypes[] = {"default", "linear", "dynamic", "llama3", "yarn"};
  Json json = {{"rope_type", kTypes[static_cast<size_t>(r.scaling)]}, {"factor", r.factor}};
  if (r.scaling == Scaling::llama3 || r.scaling == Scaling::yarn)
    json["original_max_position_embeddings"] = static_cast<int64_t>(r.first_length);
  if (r.scaling == Scaling::llama3) {
    json["low_freq_factor"] = r.low;
    json["high_freq_factor"] = r.high;
  }
  if (r.scaling == Scaling::yarn) {
    json["beta_fast"] = r.most_turns;
    json["beta_slow"] = r.least_turns;
    json["attention_factor"] = r.gain;
    json["truncate"] = r.whole_pairs;
  }
  return json;
}

constexpr const char* kTokenIds[] = {"bos_token_id", "eos_token_id", "pad_token_id"};

void add_token_ids(Json& json, const std::string& origin) {
  if (origin.empty() || !is_hub_folder(origin)) return;
  const Json own = read_json(file_of(origin));
  for (const char* key : kTokenIds)
    if (own.contains(key)) json[key] = own[key];
}

bool is_encoder_of_hub(const ModelConfig& model) {
  return family_of(model) == Family::encoder && model.name != "encoder" &&
         models::is_network(model.name) && model.name != "sequential";
}

Json encoder_config(const ModelConfig& model, const std::string& dtype, const std::string& origin,
                    const std::vector<std::string>& labels) {
  using models::BertFamily;
  models::BertOptions o = models::bert_options(model.name);
  models::Options given = model.options;
  if (model.vocab_size) given["vocab_size"] = *model.vocab_size;
  models::set_options(o, models::BertOptions::list(), given);
  const int64_t inner = o.intermediate > 0 ? o.intermediate : 4 * o.hidden;
  const bool roberta = o.family == BertFamily::roberta, distil = o.family == BertFamily::distilbert;
  const std::string task = labels.empty() ? "ForMaskedLM" : "ForSequenceClassification";
  Json json = {{"architectures", Json::array({(roberta  ? "Roberta"
                                               : distil ? "DistilBert"
                                                        : "Bert") +
                                              task})},
               {"model_type", roberta  ? "roberta"
                              : distil ? "distilbert"
                                       : "bert"},
               {"vocab_size", o.vocab_size},
               {"max_position_embeddings", o.max_positions},
               {"pad_token_id", o.padding_id},
               {"initializer_range", 0.02},
               {"torch_dtype", dtype}};
  const Json sizes = {o.layers, o.hidden, o.heads, inner, o.dropout, o.attention_dropout, "gelu"};
  constexpr const char* kOurs[] = {"num_hidden_layers",   "hidden_size",
                                   "num_attention_heads", "intermediate_size",
                                   "hidden_dropout_prob", "attention_probs_dropout_prob",
                                   "hidden_act"};
  constexpr const char* kDistil[] = {
      "n_layers", "dim", "n_heads", "hidden_dim", "dropout", "attention_dropout", "activation"};
  for (size_t i = 0; i < sizes.size(); ++i) json[distil ? kDistil[i] : kOurs[i]] = sizes[i];
  if (distil) {
    json["seq_classif_dropout"] = o.pooler_dropout;
    json["sinusoidal_pos_embds"] = false;
  } else {
    json["type_vocab_size"] = o.types;
    json["layer_norm_eps"] = o.eps;
  }
  for (size_t i = 0; i < labels.size(); ++i) {
    json["id2label"][std::to_string(i)] = labels[i];
    json["label2id"][labels[i]] = i;
  }
  add_token_ids(json, origin);
  return json;
}

bool is_gpt2(const ModelConfig& model) {
  const auto& all = models::Gpt2Options::published();
  return std::any_of(all.begin(), all.end(),
                     [&](const auto& each) { return each.first == model.name; });
}

Json gpt2_config(const ModelConfig& model, const std::string& dtype, const std::string& origin) {
  models::Gpt2Options o = models::gpt2_options(model.name);
  models::Options given = model.options;
  if (model.vocab_size) given["vocab_size"] = *model.vocab_size;
  models::set_options(o, models::Gpt2Options::list(), given);
  Json json = {{"architectures", Json::array({"GPT2LMHeadModel"})},
               {"model_type", "gpt2"},
               {"vocab_size", o.vocab_size},
               {"n_positions", o.context_length},
               {"n_ctx", o.context_length},
               {"n_embd", o.hidden},
               {"n_layer", o.layers},
               {"n_head", o.heads},
               {"n_inner", o.inner > 0 ? Json(o.inner) : Json(nullptr)},
               {"activation_function", "gelu_new"},
               {"resid_pdrop", o.dropout},
               {"embd_pdrop", o.dropout},
               {"attn_pdrop", o.attention_dropout},
               {"layer_norm_epsilon", o.eps},
               {"initializer_range", 0.02},
               {"scale_attn_weights", true},
               {"tie_word_embeddings", o.tied},
               {"torch_dtype", dtype},
               {"use_cache", true}};
  // Without these keys, the library takes a token that a smaller vocabulary does not have.
  constexpr int64_t kUsualEnd = 50256;
  if (o.vocab_size <= kUsualEnd)
    for (const char* key : {"bos_token_id", "eos_token_id"}) json[key] = nullptr;
  add_token_ids(json, origin);
  return json;
}

}  // namespace

Json hub_config(const ModelConfig& model, const std::string& dtype, const std::string& origin,
                const std::vector<std::string>& labels) {
  if (is_encoder_of_hub(model)) return encoder_config(model, dtype, origin, labels);
  if (is_gpt2(model)) return gpt2_config(model, dtype, origin);
  if (model.name != "decoder")
    throw ConfigError("model.name",
                      fmt::format("expected decoder, GPT-2, BERT, RoBERTa or DistilBERT, whose "
                                  "config.json is known, got {}",
                                  model.name));
  const DecoderOptions o = decoder_options(model);
  const Usual& usual = usual_of(o.family);
  const bool gemma = o.is_gemma(),
             qwen = usual.family == DecoderFamily::qwen2 || usual.family == DecoderFamily::qwen3;
  const bool smol = usual.family == DecoderFamily::smollm3;
  const Gate gate = o.activation.value_or(gemma ? Gate::gelu_tanh : Gate::silu);
  constexpr const char* kGates[] = {"silu", "gelu", "gelu_pytorch_tanh"};
  const bool dynamic = o.rotary.scaling == RotaryOptions::Scaling::dynamic;
  Json json = {{"architectures", Json::array({usual.architecture})},
               {"model_type", usual.type},
               {"vocab_size", o.vocab_size},
               {"hidden_size", o.hidden},
               {"intermediate_size", o.inner_width()},
               {"num_hidden_layers", o.layers},
               {"num_attention_heads", o.heads},
               {"num_key_value_heads", o.key_heads()},
               {"head_dim", o.channels()},
               {"max_position_embeddings",
                dynamic ? static_cast<int64_t>(o.rotary.first_length) : o.context_length},
               {"rms_norm_eps", o.eps},
               {"attention_dropout", o.attention_dropout},
               {"tie_word_embeddings", o.is_tied()},
               {"initializer_range", 0.02},
               {"torch_dtype", dtype},
               {"use_cache", true}};
  json[gemma ? "hidden_activation" : "hidden_act"] = kGates[static_cast<size_t>(gate)];
  if (usual.family != DecoderFamily::qwen2 && usual.family != DecoderFamily::mistral)
    json["attention_bias"] = o.attention_bias;
  if (usual.family == DecoderFamily::llama || smol) json["mlp_bias"] = o.mlp_bias;
  json["rope_theta"] = o.rotary.base;
  json["rope_scaling"] = rope_json(o.rotary);
  if (usual.family == DecoderFamily::gemma3) json["rope_local_base_freq"] = o.local_base;
  Json types = Json::array(), turns = Json::array();
  int64_t window = 0;
  for (int64_t i = 0; i < o.layers; ++i) {
    window = std::max(window, o.window_of(i));
    types.push_back(o.window_of(i) > 0 ? "sliding_attention" : "full_attention");
    turns.push_back(o.turns(i) ? 1 : 0);
  }
  if (usual.family == DecoderFamily::mistral || qwen || smol || gemma)
    json["sliding_window"] = window > 0 ? Json(window) : Json(nullptr);
  if (qwen || smol) json["use_sliding_window"] = window > 0;
  if (qwen || smol || gemma) json["layer_types"] = types;
  if (smol) json["no_rope_layers"] = turns;
  if (gemma) {
    const double scale = o.attention_scale > 0 ? o.attention_scale
                                               : 1 / std::sqrt(static_cast<double>(o.channels()));
    const double scalar = 1 / (scale * scale), whole = std::round(scalar);
    json["query_pre_attn_scalar"] =
        std::fabs(scalar - whole) < 1e-6 * whole ? Json(static_cast<int64_t>(whole)) : Json(scalar);
    const auto cap = [](double value) { return value > 0 ? Json(value) : Json(nullptr); };
    const bool gemma2 = usual.family == DecoderFamily::gemma2;
    json["attn_logit_softcapping"] = cap(o.attention_cap.value_or(gemma2 ? 50 : 0));
    json["final_logit_softcapping"] = cap(o.cap.value_or(gemma2 ? 30 : 0));
  }
  add_token_ids(json, origin);
  // What the file says of the network must be the network.
  Entries all(json, kFile, "");
  all.ignore("model_type");
  ModelConfig again;
  const Json keys = decoder_keys(all, usual, kFile);
  all.finish();
  for (const auto& field : DecoderOptions::list())
    if (const auto found = keys.find(field.key.name); found != keys.end() && !found->is_null())
      again.options[field.key.name] = value_of(field.key.range, *found, "model");
  if (!is_same(decoder_options(again), o))
    throw ConfigError("model.family",
                      fmt::format("expected a network that the config.json of {} can describe: it "
                                  "has no key for one of rope_layers, rope_gain, attention_window, "
                                  "window_layers, attention_scale, attention_cap, logit_cap, "
                                  "attention_bias and mlp_bias as they are here",
                                  usual.type));
  return json;
}

}  // namespace frugal::apps
