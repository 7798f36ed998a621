// Positions of vision transformers for pictures of another size.
#include "models/position_grid.h"

#include <doctest/doctest.h>

#include <cmath>

#include "core/rng.h"
#include "models/published_names.h"
#include "models/state.h"
#include "models/zoo/swin.h"
#include "models/zoo/vit.h"

using namespace frugal;
using namespace frugal::models;

namespace {

// [side^2, 2] f64.
Tensor grid_values(int64_t side) {
  std::vector<double> values;
  for (int64_t i = 0; i < side; ++i)
    for (int64_t j = 0; j < side; ++j)
      for (int64_t k = 0; k < 2; ++k)
        values.push_back(std::sin(1.3 * static_cast<double>(i) + 0.7 * static_cast<double>(j)) +
                         0.1 * static_cast<double>((3 * i + 5 * j + k * 7) % 4));
  return Tensor::from<double>(values, {side * side, 2});
}

// What PyTorch 1.13 gives for column 1 in f32: interpolate(mode="bicubic") with align_corners, with
// its default, and with antialias.
struct GoldenGrid {
  GridSampling sampling;
  int64_t from, to;
  std::vector<double> values;
};
const std::vector<GoldenGrid>& golden_grids() {
  static const std::vector<GoldenGrid> all = {
      {GridSampling::corners, 3, 5, {0.3,      0.430743, 0.644218, 0.897104,  1.08545,
                                     0.783159, 0.928119, 1.036168, 0.961457,  0.839307,
                                     1.163558, 1.259733, 1.209297, 0.822627,  0.42738,
                                     0.970488, 0.895416, 0.678752, 0.273823,  -0.076405,
                                     0.615501, 0.375664, 0.042254, -0.261016, -0.456802}},
      {GridSampling::corners,
       5,
       3,
       {0.3, 1.08545, 0.634988, 0.615501, -0.456802, -0.672764, -0.583455, 0.411541, 1.289358}},
      {GridSampling::centres, 3, 5, {0.181303, 0.32155,  0.58997,   0.958713,  1.202255,
                                     0.648315, 0.784303, 0.947496,  0.934276,  0.888623,
                                     1.159168, 1.237603, 1.209297,  0.734057,  0.352316,
                                     0.924363, 0.802925, 0.535753,  0.083737,  -0.22802,
                                     0.623624, 0.351389, -0.069782, -0.404138, -0.586987}},
      {GridSampling::centres,
       5,
       3,
       {0.68967, 0.927401, 0.38435, 0.46276, -0.456802, -0.805932, -0.694291, 0.073187, 1.019579}},
      {GridSampling::smooth, 3, 5, {0.207147, 0.33957,  0.60157,   0.964398,  1.175383,
                                    0.60726,  0.721184, 0.894673,  0.906348,  0.894191,
                                    1.160106, 1.214612, 1.209297,  0.703682,  0.368367,
                                    0.874284, 0.746035, 0.476892,  0.03636,   -0.22543,
                                    0.620928, 0.378079, -0.045824, -0.383738, -0.559587}},
      {GridSampling::smooth,
       5,
       3,
       {0.822436, 0.829973, 0.265513, 0.346454, -0.363197, -0.61343, -0.711065, -0.048322,
        0.857743}}};
  return all;
}

VitOptions tiny_vit(int64_t image, int64_t width = 6) {
  VitOptions options;
  options.image = image;
  options.patch = 4;
  options.layers = 1;
  options.hidden = width;
  options.heads = 2;
  options.num_classes = 3;
  return options;
}
SwinOptions tiny_swin(int64_t window) {
  SwinOptions options;
  options.width = 4;
  options.depths = {1, 1, 1, 1};
  options.heads = {1, 1, 2, 2};
  options.window = window;
  options.num_classes = 3;
  return options;
}
template <class Net, class Options>
std::shared_ptr<Net> net_of(const Options& options, uint64_t seed) {
  Init init{Rng(seed)};
  return std::make_shared<Net>(init, options);
}

Tensor entry(const NamedTensors& state, const std::string& name) {
  for (const auto& [each, tensor] : state)
    if (each == name) return tensor;
  FAIL("no tensor ", name);
  return {};
}

// The golden values have 6 digits and PyTorch computes in f32: values of at most 1.3 from at most
// 25 products.
constexpr double kGolden = 0.5e-6 + 25 * 1.3 * 6e-8;

}  // namespace

TEST_CASE("grids of positions are interpolated as PyTorch does it") {
  for (const GoldenGrid& golden : golden_grids()) {
    CAPTURE(golden.from);
    CAPTURE(static_cast<int>(golden.sampling));
    const Tensor y = resample_grid(grid_values(golden.from), golden.to, golden.sampling);
    REQUIRE(y.shape() == Shape({golden.to * golden.to, 2}));
    CHECK(y.dtype() == DType::f64);
    for (size_t i = 0; i < golden.values.size(); ++i)
      CHECK(std::abs(y.item(static_cast<int64_t>(2 * i + 1)) - golden.values[i]) < kGolden);
  }
}

TEST_CASE("a grid of equal positions stays equal, and one of the same size stays as it is") {
  for (const GridSampling sampling :
       {GridSampling::corners, GridSampling::centres, GridSampling::smooth})
    for (const int64_t from : {1, 2, 5})
      for (const int64_t to : {1, 3, 8}) {
        CAPTURE(from);
        CAPTURE(to);
        const Tensor even = resample_grid(Tensor::full({from * from, 2}, 0.75), to, sampling);
        for (const double value : even.to_vector()) CHECK(std::abs(value - 0.75) < 1e-6);
      }
  const Tensor x = grid_values(4);
  for (const GridSampling sampling : {GridSampling::corners, GridSampling::centres}) {
    const Tensor same = resample_grid(x, 4, sampling);
    for (int64_t i = 0; i < x.numel(); ++i) CHECK(std::abs(same.item(i) - x.item(i)) < 1e-12);
  }
  CHECK_THROWS_WITH_AS(resample_grid(Tensor::zeros({6, 2}), 3, GridSampling::corners),
                       doctest::Contains("square grid"), Error);
  CHECK_THROWS_WITH_AS(resample_grid(Tensor::zeros({4, 2}), 0, GridSampling::corners),
                       doctest::Contains("at least 1"), Error);
}

TEST_CASE("weights of a ViT load for pictures of another size, as the file's library does it") {
  const auto small = net_of<Vit>(tiny_vit(8), 1);
  const NamedTensors state = state_dict(*small);
  const std::string name = "encoder.pos_embedding";
  const Tensor old = entry(state, name).view({5, 6});
  struct Library {
    std::string name;
    GridSampling sampling;
  };
  for (const Library& library :
       {Library{name, GridSampling::corners}, Library{"pos_embed", GridSampling::smooth},
        Library{"embeddings.position_embeddings", GridSampling::centres}}) {
    CAPTURE(library.name);
    NamedTensors published = state;
    for (auto& [each, tensor] : published)
      if (each == name) each = library.name;
    const auto large = net_of<Vit>(tiny_vit(16), 2);
    // Without the option another size is an error, as before.
    CHECK_THROWS_WITH_AS(load_state_dict(*large, published, "small"),
                         doctest::Contains("encoder.pos_embedding"), Error);
    const StateNotes notes =
        load_state_dict(*large, published, "small", {.resize_positions = true});
    REQUIRE(notes.resized.size() == 1);
    CHECK(notes.resized[0].name == name);
    CHECK(notes.resized[0].from == 2);
    CHECK(notes.resized[0].to == 4);
    const Tensor got = entry(state_dict(*large), name).view({17, 6});
    const Tensor expected = resample_grid(old.slice(0, 1, 5), 4, library.sampling);
    CHECK(got.slice(0, 0, 1).to_vector() == old.slice(0, 0, 1).to_vector());
    CHECK(got.slice(0, 1, 17).to_vector() == expected.to_vector());
    CHECK(entry(state_dict(*large), "conv_proj.weight").to_vector() ==
          entry(state, "conv_proj.weight").to_vector());
  }
  // Another width is no other grid.
  const auto wide = net_of<Vit>(tiny_vit(16, 8), 3);
  CHECK_THROWS_WITH_AS(load_state_dict(*wide, state, "small", {.resize_positions = true}),
                       doctest::Contains("do not fit the model"), Error);
}

TEST_CASE("weights of a Swin load for windows of another size") {
  const auto small = net_of<Swin>(tiny_swin(2), 1), large = net_of<Swin>(tiny_swin(3), 2);
  const NamedTensors state = state_dict(*small);
  const std::string block = "features.5.0.attn.";
  const Tensor index = entry(state_dict(*large), block + "relative_position_index");
  const StateNotes notes = load_state_dict(*large, state, "small", {.resize_positions = true});
  CHECK(notes.resized.size() == 4);
  CHECK(notes.resized[0].from == 3);
  CHECK(notes.resized[0].to == 5);
  const std::string table = block + "relative_position_bias_table";
  CHECK(entry(state_dict(*large), table).to_vector() ==
        resample_grid(entry(state, table), 5, GridSampling::centres).to_vector());
  CHECK(entry(state_dict(*large), block + "relative_position_index").to_vector() ==
        index.to_vector());
}
