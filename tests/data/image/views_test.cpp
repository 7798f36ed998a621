#include "data/image/views.h"

#include <doctest/doctest.h>

#include <cmath>

#include "core/error.h"

using namespace frugal;
using namespace frugal::data;

namespace {

// The value of a pixel is its place: 10 times the row and the column.
Picture numbered(int64_t height, int64_t width) {
  Picture picture{height, width, 1, {}};
  for (int64_t y = 0; y < height; ++y)
    for (int64_t x = 0; x < width; ++x) picture.pixels.push_back(uint8_t(10 * y + x));
  return picture;
}

std::vector<int> corner_values(const Picture& picture, const ViewOptions& options, Views views) {
  const std::vector<Crop> crops = crops_of(views);
  const auto each = size_t(options.height * options.width * options.channels);
  std::vector<float> out(each * crops.size());
  cut_views(picture, options, crops, out.data());
  std::vector<int> first;
  for (size_t i = 0; i < crops.size(); ++i) first.push_back(int(std::lround(255 * out[i * each])));
  return first;
}

}  // namespace

TEST_CASE("views are cut where torchvision cuts them") {
  // 6 x 8 at its own size: the centre of 4 x 4 begins at (1, 2).
  const Picture picture = numbered(6, 8);
  const ViewOptions options{4, 4, 1, 6};
  CHECK(corner_values(picture, options, Views::centre) == std::vector<int>{12});
  CHECK(corner_values(picture, options, Views::ten_crop) == std::vector<int>{0, 4, 20, 24, 12});
  CHECK_FALSE(mirrors(Views::centre));
  CHECK(mirrors(Views::flip));
  CHECK(mirrors(Views::ten_crop));
}

TEST_CASE("a picture of the sample's size stays as it is, and mirroring turns its rows") {
  const Picture picture = numbered(3, 4);
  std::vector<float> out(12);
  const Crop centre[] = {Crop::centre};
  cut_views(numbered(4, 4), {4, 4, 1, 0}, centre, std::vector<float>(16).data());
  cut_views(picture, {3, 3, 1, 0}, centre, out.data());
  CHECK(std::lround(255 * out[0]) == 1);  // half a pixel of 1 is rounded up
  std::vector<float> rgb = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  mirror(rgb.data(), 2, 1, 2, 3);
  CHECK(rgb == std::vector<float>{4, 5, 6, 1, 2, 3, 10, 11, 12, 7, 8, 9});
  CHECK_THROWS_AS(cut_views(picture, {4, 4, 1, 3}, centre, out.data()), Error);
  CHECK_THROWS_AS(cut_views(picture, {2, 2, 3, 0}, centre, out.data()), Error);
  Picture broken = picture;
  broken.pixels.pop_back();
  CHECK_THROWS_AS(cut_views(broken, {2, 2, 1, 0}, centre, out.data()), Error);
}
