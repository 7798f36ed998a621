#include "models/pack.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <set>

#include "core/words/quoted.h"
#include "models/matrix_weight.h"
#include "models/name_pattern.h"
#include "models/option.h"

namespace frugal::models {
namespace {

ops::PackedMatrix on_device(ops::PackedMatrix packed, Device device) {
  const CategoryScope scope(Category::parameter);
  for (const auto& [ending, part] : packed.parts()) *part = to_device(*part, device);
  return packed;
}

// The values of a weight, on the host or on `meta`.
Tensor values_of(const MatrixWeight& weight, const LaterDraws* later) {
  const Tensor& given = weight.whole.value();
  if (given.device() == kMeta && later != nullptr)
    if (const LaterDraws::Draw* draw = later->find(given)) return draw->make();
  return given.device() == kMeta ? given : to_device(given, kCpu);
}

void pack_names(Module& model, const std::vector<std::string>& names, ops::MatrixFormat format,
                const LaterDraws* later) {
  const std::set<std::string> chosen(names.begin(), names.end());
  const Device device = model.device();
  for (const Module::NamedMatrix& m : model.matrices()) {
    if (!chosen.contains(m.name)) continue;
    m.weight->packed = on_device(ops::pack_matrix(values_of(*m.weight, later), format), device);
    m.weight->whole = {};
  }
}

}  // namespace

std::vector<by_name::Option<PackOptions>> PackOptions::list() {
  using O = PackOptions;
  return {{{"frozen", range::choice("f32, bf16, int8, nf4"),
            "How weights of linear layers that do not train are held: nf4 takes 4.13 bits a weight "
            "(QLoRA's, with double quantization), int8 8 bits and a scale for each row. Norms, "
            "embeddings and the last layer stay f32."},
           &O::format},
          {{"frozen_layers", range::list(range::any_text(), 0, 64),
            "frozen: only weights that fit these patterns or beginnings of names, such as "
            "\"model.layers.\"; \"!*.o_proj.weight\" takes some out again. []: all that do not "
            "train."},
           &O::layers}};
}

std::vector<std::string> packable_names(Module& model, const PackOptions& options) {
  const std::vector<Module::NamedMatrix> all = model.matrices();
  const std::string head = model.head_prefix();
  const auto in_head = [&](const std::string& name) {
    return !head.empty() && name.starts_with(head);
  };
  std::vector<bool> fits_one(all.size(),
                             options.layers.empty() || options.layers.front().starts_with("!"));
  const auto may = [&](const Module::NamedMatrix& m) {
    return !in_head(m.name) && (m.weight->packed.defined() || !m.weight->whole.requires_grad());
  };
  FRUGAL_CHECK(std::any_of(all.begin(), all.end(), may),
               "[pack] expected weights of linear layers that do not train, besides the last "
               "layer's, for the format {}; got none: freeze some first",
               ops::name_of(options.format));
  for (const std::string& entry : options.layers) {
    const bool out = entry.starts_with("!");
    const std::string pattern = out ? entry.substr(1) : entry;
    const Module::NamedMatrix* other = nullptr;
    bool found = false;
    for (size_t i = 0; i < all.size(); ++i) {
      if (pattern.empty() || !fits(pattern, all[i].name)) continue;
      fits_one[i] = !out;
      found = found || out || may(all[i]);
      other = &all[i];
    }
    FRUGAL_CHECK(
        found || other == nullptr,
        "[frozen_layers] expected patterns of weights that do not train, got {}, which fits {}, {}",
        in_quotes(entry), in_quotes(other == nullptr ? "" : other->name),
        other != nullptr && in_head(other->name)
            ? "the last layer's, which the loss reads as a whole"
            : "which trains");
    FRUGAL_CHECK(
        found,
        "[frozen_layers] expected a pattern that fits the weight of a linear layer, such as {}, "
        "got {}",
        in_quotes(all.front().name), in_quotes(entry));
  }
  std::vector<std::string> names;
  for (size_t i = 0; i < all.size(); ++i)
    if (fits_one[i] && may(all[i]) && !all[i].weight->packed.defined())
      names.push_back(all[i].name);
  return names;
}

void pack(Module& model, const PackOptions& options, const LaterDraws* later) {
  if (options.format == ops::MatrixFormat::f32) return;
  pack_names(model, packable_names(model, options), options.format, later);
}

bool fits_bf16(const Tensor& matrix) {
  constexpr int64_t kChunk = 4096;  // without a way out of the loop, it is vectorized
  constexpr uint32_t kBelowBf16 = 0xffff;
  const auto* x = matrix.data<float>();
  uint32_t below = 0;
  bool finite = true;
  for (int64_t begin = 0; begin < matrix.numel() && finite && below == 0; begin += kChunk)
    for (int64_t i = begin; i < std::min(begin + kChunk, matrix.numel()); ++i) {
      below |= std::bit_cast<uint32_t>(x[i]) & kBelowBf16;
      finite = finite & std::isfinite(x[i]);
    }
  return finite && below == 0;
}

void pack_exact(Module& model) {
  const std::string head = model.head_prefix();
  std::vector<std::string> names;
  for (const Module::NamedMatrix& m : model.matrices()) {
    if (m.weight->packed.defined() || (!head.empty() && m.name.starts_with(head))) continue;
    const Tensor& values = m.weight->whole.value();
    if (values.device() == kCpu && values.dtype() == DType::f32 && values.is_contiguous() &&
        fits_bf16(values))
      names.push_back(m.name);
  }
  pack_names(model, names, ops::MatrixFormat::bf16, nullptr);
}

int64_t packed_weights(Module& model) {
  int64_t count = 0;
  for (const Module::NamedMatrix& m : model.matrices())
    if (m.weight->packed.defined()) count += m.weight->packed.rows * m.weight->packed.columns;
  return count;
}

std::shared_ptr<Module> make_packed(const std::function<std::shared_ptr<Module>(Init&)>& make,
                                    Init& init, const PackOptions& options) {
  if (options.format == ops::MatrixFormat::f32) return make(init);
  Init shapes = init;
  shapes.device = kMeta;
  shapes.later = std::make_shared<LaterDraws>();
  const std::shared_ptr<Module> described = make(shapes);
  const std::vector<std::string> names = packable_names(*described, options);
  if (init.device == kMeta) {
    pack_names(*described, names, options.format, nullptr);
    return described;
  }
  init.later = std::make_shared<LaterDraws>();
  const std::set<std::string> chosen(names.begin(), names.end());
  for (const Module::NamedMatrix& m : described->matrices())
    if (chosen.contains(m.name))
      if (const auto* draw = shapes.later->find(m.weight->whole.value()))
        init.later->waiting.insert(draw->number);
  std::shared_ptr<Module> model = make(init);
  pack_names(*model, names, options.format, init.later.get());
  init.later = nullptr;
  return model;
}

}  // namespace frugal::models
