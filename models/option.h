// Options of networks by their names (core/option.h). Names that several networks share are in
// models/zoo/keys.h.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "core/option.h"

namespace frugal::models {

namespace range = by_name::range;
using by_name::check_range, by_name::choices_of, by_name::fits, by_name::joined,
    by_name::set_options, by_name::shown, by_name::text_of, by_name::type_name;
using by_name::Key, by_name::Option, by_name::Options, by_name::Range, by_name::Value;

// Options by name: the published networks of one kind, in order.
template <class S>
using Published = std::vector<std::pair<std::string, S>>;

// Errors: an unknown name; the message lists the known ones. `op` is what the message begins with.
template <class S>
S find_published(const Published<S>& all, const char* op, const std::string& name) {
  std::string names;
  for (const auto& [each, options] : all) {
    if (each == name) return options;
    names += (names.empty() ? "" : ", ") + each;
  }
  throw Error(fmt::format("[{}] expected one of {}, got '{}'", op, names, name));
}

// Which sizes a network takes beside its own. Layers are `least_layers` and more, by `layers_step`;
// widths and sides of images are multiples. (Other sides may do, too; these do with every network
// of the family.)
struct Sizes {
  int64_t least_layers = 1, layers_step = 1;
  int64_t width_step = 4;
  int64_t side_step = 4;
  int64_t least_side = 1;  // images that are smaller are refused
};

// The kind of data that a network reads.
// Images, which a network classifies as a whole or pixel by pixel (segmentation), or in which it
// finds objects (detection); sequences, as a whole (encoder) or up to each token (decoder); graphs.
enum class Family : uint8_t { images, segmentation, detection, encoder, decoder, graph };

}  // namespace frugal::models
