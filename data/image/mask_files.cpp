#include "data/image/mask_files.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <set>

#include "core/log.h"
#include "core/words/quoted.h"
#include "data/formats/file_bytes.h"
#include "data/image/draws.h"
#include "data/image/orientation.h"
#include "data/image/picture_stems.h"
#include "data/missing_files.h"

namespace frugal::data {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kValues = 256, kNoLabel = 255;
constexpr const char* kPictures = "_leftImg8bit";
constexpr const char* kTrainIds = "_gtFine_labelTrainIds";

struct Folders {
  fs::path pictures, masks;
};

bool has_pictures(const fs::path& folder) {
  std::error_code error;
  for (fs::recursive_directory_iterator entry(folder, error), end; entry != end && !error;
       entry.increment(error))
    if (has_picture_name(entry->path().string())) return true;
  return false;
}

// Errors: pictures in several of these pairs, such as images beside masks and labels. Folders
// without pictures, such as labels with files of text, do not count beside others.
std::optional<Folders> folders_in(const fs::path& root) {
  static constexpr std::array<std::pair<const char*, const char*>, 8> kKnown = {
      {{"images", "masks"},
       {"image", "mask"},
       {"image", "label"},
       {"images", "labels"},
       {"imgs", "labels"},
       {"images", "annotations"},
       {"JPEGImages", "SegmentationClass"},
       {"leftImg8bit", "gtFine"}}};
  std::vector<Folders> there, filled;
  for (const auto& [pictures, masks] : kKnown)
    if (is_folder(root / pictures) && is_folder(root / masks))
      there.push_back({root / pictures, root / masks});
  if (there.size() > 1)
    for (const Folders& each : there)
      if (has_pictures(each.pictures) && has_pictures(each.masks)) filled.push_back(each);
  if (filled.size() > 1)
    throw Error(fmt::format(
        "[masks] {}: expected one folder of pictures and one of their masks, got {} with {} and {} "
        "with {}; take one of them away",
        in_quotes(root.string()), in_quotes(filled[0].pictures.filename().string()),
        in_quotes(filled[0].masks.filename().string()),
        in_quotes(filled[1].pictures.filename().string()),
        in_quotes(filled[1].masks.filename().string())));
  if (!filled.empty()) return filled.front();
  if (!there.empty()) return there.front();
  return std::nullopt;
}

Folders found_in(const fs::path& root) {
  const auto found = folders_in(root);
  if (found) return *found;
  throw MissingFiles(fmt::format(
      "[masks] expected folders of pictures and masks in {}, such as images and masks, or "
      "image and label, got none",
      in_quotes(root.string())));
}

// ADE20K has long names.
std::vector<std::string> mask_part_names(MaskPart part) {
  std::vector<std::string> names = part_names(part);
  if (part == MaskPart::train) names.emplace_back("training");
  if (part == MaskPart::test) names.emplace_back("testing");
  return names;
}

// What to say of a picture without a mask.
std::string names_rule(const std::map<std::string, std::string>& masks, const std::string& stem,
                       bool cityscapes) {
  if (cityscapes) return fmt::format("; its name ends with {}", kTrainIds);
  const auto alike = std::find_if(masks.begin(), masks.end(), [&](const auto& each) {
    return each.first.find(stem) != std::string::npos;
  });
  return fmt::format("; a picture and its mask have the same name, up to the ending{}",
                     alike == masks.end()
                         ? ""
                         : fmt::format(", and {} has another one", in_quotes(alike->second)));
}

std::vector<MaskFile> pairs(const Folders& folders) {
  const std::string pictures_suffix = kPictures, masks_suffix = kTrainIds;
  const auto pictures = pictures_by_stem("masks", folders.pictures.string(), pictures_suffix);
  // Cityscapes has several masks of a picture.
  const bool cityscapes = std::any_of(pictures.begin(), pictures.end(), [&](const auto& each) {
    return fs::path(each.second).stem().string().ends_with(pictures_suffix);
  });
  const auto masks = pictures_by_stem("masks", folders.masks.string(), masks_suffix, cityscapes);
  std::vector<MaskFile> found;
  for (const auto& [stem, picture] : pictures) {
    const auto mask = masks.find(stem);
    FRUGAL_CHECK(mask != masks.end(), "[masks] expected a mask of {} in {}, got none{}",
                 in_quotes(picture), in_quotes(folders.masks.string()),
                 names_rule(masks, stem, cityscapes));
    found.push_back({picture, mask->second});
  }
  int64_t alone = 0;
  std::string first;
  for (const auto& [stem, mask] : masks)
    if (!pictures.contains(stem) && alone++ == 0) first = mask;
  if (alone > 0)
    log().warn("[masks] {}: {} no picture in {} and {} left out{}", in_quotes(first),
               alone == 1 ? "this mask has" : fmt::format("this mask and {} more have", alone - 1),
               in_quotes(folders.pictures.string()), alone == 1 ? "is" : "are",
               cityscapes ? "" : "; a picture and its mask have the same name, up to the ending");
  return found;
}

// VOC: the names in a list.
std::vector<MaskFile> listed(const Folders& folders, const fs::path& list) {
  std::map<std::string, MaskFile> known;
  for (const auto& [stem, picture] : pictures_by_stem("masks", folders.pictures.string()))
    known[stem].picture = picture;
  for (const auto& [stem, mask] : pictures_by_stem("masks", folders.masks.string()))
    known[stem].mask = mask;
  const std::vector<uint8_t> bytes = read_file("masks", list.string());
  std::vector<MaskFile> found;
  std::set<std::string> named;
  std::string name;
  int64_t line = 1;
  const auto end_line = [&] {
    while (!name.empty() && (name.back() == '\r' || name.back() == ' ')) name.pop_back();
    if (!name.empty()) {
      const auto file = known.find(name);
      FRUGAL_CHECK(
          file != known.end() && !file->second.picture.empty() && !file->second.mask.empty(),
          "[masks] {}, line {}: expected a picture and a mask of {}, got none",
          in_quotes(list.string()), line, in_quotes(name));
      FRUGAL_CHECK(named.insert(name).second,
                   "[masks] {}, line {}: expected each picture once, got {} again",
                   in_quotes(list.string()), line, in_quotes(name));
      found.push_back(file->second);
    }
    name.clear();
    ++line;
  };
  for (const uint8_t byte : bytes) {
    if (byte == '\n')
      end_line();
    else
      name += static_cast<char>(byte);
  }
  end_line();
  return found;
}

Picture read_mask(const std::string& path) {
  const std::vector<uint8_t> bytes = read_file("masks", path);
  return decode_mask(bytes, path);
}

PictureInfo size_of_picture(const std::string& path, Exif exif) {
  const std::vector<uint8_t> bytes = read_file("masks", path);
  return picture_info(bytes, path, exif);
}

using SeenValues = std::array<bool, kValues>;

constexpr size_t kNamed = 10;

std::string shown_values(const SeenValues& seen) {
  std::vector<size_t> found;
  for (size_t value = 0; value < seen.size() && found.size() <= kNamed; ++value)
    if (seen[value]) found.push_back(value);
  const bool more = found.size() > kNamed;
  if (more) found.pop_back();
  return fmt::format("{}{}", fmt::join(found, ", "), more ? " and others" : "");
}

// What to do about values that leave classes without pixels.
std::string advice_on(SeenValues seen) {
  const bool unlabelled = seen[kNoLabel];
  seen[kNoLabel] = false;
  const bool soft = unlabelled && seen[kNoLabel - 1];  // next to a mark
  if (soft || std::count(seen.begin(), seen.end(), true) > static_cast<int64_t>(kNamed))
    return "data.mask_values names the value of each class, and other values do not count; such "
           "values come from soft edges, as JPEG and resizing make them";
  return fmt::format("data.mask_values=[{}] makes a class of each value{}", shown_values(seen),
                     unlabelled ? " but 255, which does not count" : "");
}

// A part of a picture and the part of the sample that shows it.
struct Cut {
  PictureBox box;
  int64_t height = 0, width = 0;
};

}  // namespace

std::vector<int64_t> window_starts(int64_t extent, int64_t side) {
  std::vector<int64_t> all;
  for (int64_t at = 0; at == 0 || at < extent; at += side)
    all.push_back(std::max<int64_t>(0, std::min(at, extent - side)));
  return all;
}

std::vector<MaskFile> list_masks(const std::string& folder, MaskPart part) {
  const fs::path root(folder);
  const auto shared = folders_in(root);
  std::vector<std::string> there;
  std::function<std::vector<MaskFile>()> read = [] { return std::vector<MaskFile>(); };
  for (const std::string& name : mask_part_names(part)) {
    const fs::path list = root / "ImageSets" / "Segmentation" / (name + ".txt");
    if (const auto own = folders_in(root / name)) {
      there.push_back((root / name).string());
      read = [own] { return pairs(*own); };
    } else if (shared && is_folder(shared->pictures / name)) {
      there.push_back((shared->pictures / name).string());
      read = [shared, name] { return pairs({shared->pictures / name, shared->masks / name}); };
    } else if (shared && is_file(list.string())) {
      there.push_back(list.string());
      read = [shared, list] { return listed(*shared, list); };
    }
  }
  only_one("masks", there);
  return read();
}

std::vector<MaskFile> list_masks(const std::string& folder) { return pairs(found_in(folder)); }

MaskValues find_mask_values(const std::vector<MaskFile>& files) {
  SeenValues seen{};
  int64_t last = -1;
  std::string where;  // the first mask with the highest class
  for (const MaskFile& file : files)
    for (const uint8_t value : read_mask(file.mask).pixels) {
      seen[value] = true;
      if (value == kNoLabel || value <= last) continue;
      last = value;
      where = file.mask;
    }
  if (last <= 0 && seen[kNoLabel]) return {{0, kNoLabel}, 2};
  FRUGAL_CHECK(last >= 0, "[masks] expected classes in the masks, got none");
  const auto used = std::count(seen.begin(), seen.begin() + last + 1, true);
  if (used <= last)
    log().warn(
        "[masks] masks hold the values {}, such as {} in {}; values are classes, so the "
        "network gets {}, of which {} no pixel. {}; data.classes={} takes them as they are",
        shown_values(seen), last, in_quotes(where), last + 1,
        last + 1 - used == 1 ? "1 has" : fmt::format("{} have", last + 1 - used), advice_on(seen),
        last + 1);
  return {{}, last + 1};
}

bool are_marks(const std::vector<MaskFile>& files) {
  bool marked = false;
  for (const MaskFile& file : files)
    for (const uint8_t value : read_mask(file.mask).pixels) {
      if (value != 0 && value != kNoLabel) return false;
      marked |= value == kNoLabel;
    }
  return marked;
}

void check_mask_values(const std::vector<MaskFile>& files, const MaskValues& values) {
  SeenValues seen{};
  for (const MaskFile& file : files) {
    for (const uint8_t value : read_mask(file.mask).pixels) seen[value] = true;
    for (const int64_t value : values.of_classes)
      if (value >= 0 && value < kValues && seen[static_cast<size_t>(value)]) return;
  }
  throw Error(
      fmt::format("[masks] expected a value of data.mask_values, {}, in one of {} masks "
                  "such as {}, got {}",
                  printable(fmt::format("{}", fmt::join(values.of_classes, ", "))), files.size(),
                  in_quotes(files.front().mask), shown_values(seen)));
}

MaskFiles::MaskFiles(std::vector<MaskFile> files, MaskValues values,
                     const MaskFilesOptions& options)
    : files_(std::move(files)), values_(std::move(values)), options_(options) {
  FRUGAL_CHECK(!files_.empty(), "[masks] expected pictures with masks, got none");
  FRUGAL_CHECK(
      options.height > 0 && options.width > 0 && (options.channels == 1 || options.channels == 3),
      "[masks] expected samples of at least one pixel and 1 or 3 channels, got {} x {} "
      "x {}",
      options.height, options.width, options.channels);
  FRUGAL_CHECK(options.least_scale > 0 && options.most_scale >= options.least_scale,
               "[masks] expected scales above 0 in order, got {} and {}", options.least_scale,
               options.most_scale);
  class_of_.assign(kValues, values_.of_classes.empty() ? -1 : kIgnored);
  if (values_.of_classes.empty()) {
    for (int64_t value = 0; value < std::min(values_.classes, kValues); ++value)
      class_of_[static_cast<size_t>(value)] = value;
    class_of_[kNoLabel] = kIgnored;
  }
  for (size_t c = 0; c < values_.of_classes.size(); ++c) {
    const int64_t value = values_.of_classes[c];
    FRUGAL_CHECK(value >= 0 && value < kValues, "[masks] expected values in [0, 255], got {}",
                 value);
    class_of_[static_cast<size_t>(value)] = static_cast<int64_t>(c);
  }
  for (size_t i = 0; i < files_.size(); ++i) {
    const auto file = static_cast<int64_t>(i);
    if (options.random) {
      windows_.push_back({file});
      continue;
    }
    const PictureInfo info = size_of_picture(files_[i].picture, options.exif);
    int64_t bottom = 0;  // where the windows above end
    for (const int64_t top : window_starts(info.height, options.height)) {
      int64_t right = 0;
      for (const int64_t left : window_starts(info.width, options.width)) {
        windows_.push_back({file, top, left, bottom - top, right - left});
        right = left + options.width;
      }
      bottom = top + options.height;
    }
  }
}

int64_t MaskFiles::get_into(int64_t index, RngKey key, float* out) const {
  std::vector<int64_t> target(static_cast<size_t>(target_shape().numel()));
  get_pixels_into(index, key, out, target.data());
  return kIgnored;
}

void MaskFiles::get_pixels_into(int64_t index, RngKey key, float* out, int64_t* target) const {
  const Window& window = windows_[static_cast<size_t>(index)];
  const MaskFile& file = files_[static_cast<size_t>(window.file)];
  const std::vector<uint8_t> bytes = read_file("masks", file.picture);
  PictureReader reader(bytes, file.picture, options_.exif);
  Picture mask = read_mask(file.mask);
  const auto turn = turn_of_annotations({mask.height, mask.width}, reader.stored(),
                                        reader.orientation(), options_.exif);
  FRUGAL_CHECK(turn.has_value(), "[masks] {}: expected a mask of {}, as its picture, got {} x {}",
               in_quotes(file.mask), sizes_text(reader.stored(), reader.orientation()), mask.width,
               mask.height);
  mask = turned_picture(std::move(mask), *turn);
  const Picture picture = reader.decode(options_.channels);
  const int64_t channels = options_.channels, columns = options_.width;
  double scale = 1;
  if (options_.random) scale = draw_between(key, 0, options_.least_scale, options_.most_scale);
  const auto cut_of = [&](int64_t extent, int64_t side, int64_t at, uint64_t counter) {
    const double size = std::min(static_cast<double>(side) / scale, static_cast<double>(extent));
    const double begin = options_.random
                             ? draw_between(key, counter, 0, static_cast<double>(extent) - size)
                             : static_cast<double>(at);
    const auto shown = static_cast<int64_t>(std::lround(size * scale));
    return std::tuple{begin, size, std::clamp<int64_t>(shown, 1, side)};
  };
  Cut cut;
  std::tie(cut.box.top, cut.box.height, cut.height) =
      cut_of(picture.height, options_.height, window.top, 1);
  std::tie(cut.box.left, cut.box.width, cut.width) =
      cut_of(picture.width, options_.width, window.left, 2);
  std::fill_n(out, sample_shape().numel(), 0.0f);
  std::fill_n(target, target_shape().numel(), kIgnored);
  std::vector<float> pixels(static_cast<size_t>(cut.height * cut.width * channels));
  resize_into(picture, cut.box, cut.height, cut.width, pixels.data());
  const auto source = [](double begin, double size, int64_t at, int64_t shown, int64_t extent) {
    const double place =
        begin + (static_cast<double>(at) + 0.5) * size / static_cast<double>(shown);
    return std::clamp<int64_t>(static_cast<int64_t>(place), 0, extent - 1);
  };
  for (int64_t y = 0; y < cut.height; ++y) {
    std::copy_n(pixels.data() + y * cut.width * channels, cut.width * channels,
                out + y * columns * channels);
    if (y < window.first_row) continue;
    const int64_t row = source(cut.box.top, cut.box.height, y, cut.height, mask.height);
    for (int64_t x = std::max<int64_t>(0, window.first_column); x < cut.width; ++x) {
      const int64_t column = source(cut.box.left, cut.box.width, x, cut.width, mask.width);
      const uint8_t value = mask.pixels[static_cast<size_t>(row * mask.width + column)];
      const int64_t label = class_of_[value];
      FRUGAL_CHECK(label != -1,
                   "[masks] {}: expected classes below {}, or 255, got {} in row {}, column {}; "
                   "data.mask_values says which value is which class",
                   in_quotes(file.mask), values_.classes, value, row, column);
      target[y * columns + x] = label;
    }
  }
}

}  // namespace frugal::data
