#include "data/detection/box_set.h"

#include <filesystem>

#include "core/log.h"
#include "core/words/nouns.h"
#include "core/words/quoted.h"
#include "data/formats/file_bytes.h"
#include "data/missing_files.h"

namespace frugal::data {
namespace {

namespace fs = std::filesystem;

struct CocoFiles {
  std::string list, pictures;
};

CocoFiles coco_files(const std::string& folder, const std::string& name) {
  const fs::path root(folder);
  const fs::path beside = root / name / "_annotations.coco.json";
  if (is_file(beside.string())) return {beside.string(), (root / name).string()};
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator entry(root / "annotations", error), end; entry != end && !error;
       entry.increment(error))
    if (entry->path().filename().string().starts_with("instances_" + name) &&
        entry->path().extension() == ".json")
      found.push_back(entry->path());
  FRUGAL_CHECK(found.size() <= 1,
               "[coco] {}: expected one file annotations/instances_{}*.json, got {}",
               in_quotes(folder), name, found.size());
  if (found.empty()) return {};
  const std::string own = found[0].stem().string().substr(std::string("instances_").size());
  return {found[0].string(), (is_folder(root / own) ? root / own : root / name).string()};
}

// Empty names: there is no such part.
CocoFiles coco_files(const std::string& folder, BoxPart part) {
  CocoFiles all;
  std::vector<std::string> lists;
  for (const std::string& name : part_names(part)) {
    const CocoFiles files = coco_files(folder, name);
    // instances_val*.json is also that of a part whose name begins so.
    if (files.list.empty() || (!lists.empty() && lists.back() == files.list)) continue;
    lists.push_back(files.list);
    all = files;
  }
  only_one("coco", lists);
  return all;
}

}  // namespace

void BadEntries::add(const std::string& message) {
  const std::string advice = "; data.skip_bad: true leaves it out";
  if (!skip_) throw Error(message.ends_with(advice) ? message : message + advice);
  bad_.add(message);
}

void BadEntries::add_clipped(const std::string& where) { clipped_.add(where); }

void BadEntries::add_empty(const std::string& where) { empty_.add(where); }

void BadEntries::warn(const std::string& what) const {
  if (clipped_.count > 0)
    log().warn(
        "{}: up to a pixel beyond their pictures, and now ending at the edge: {}; the first: {}",
        what, with_noun(clipped_.count, "box", "boxes"), clipped_.first);
  if (empty_.count > 0)
    log().warn("{}: left out without area: {}; the first: {}", what,
               with_noun(empty_.count, "box", "boxes"), empty_.first);
  if (bad_.count > 0)
    log().warn("{}: left out with their pictures: {}; the first: {}", what,
               with_noun(bad_.count, "bad entry", "bad entries"), bad_.first);
}

bool is_voc(const std::string& folder) {
  const fs::path root(folder);
  return is_folder(root / "Annotations") && is_folder(root / "JPEGImages");
}

bool is_coco(const std::string& folder) { return !coco_files(folder, BoxPart::train).list.empty(); }

BoxSet read_boxes(const std::string& folder, BoxPart part, const BoxListOptions& options,
                  BadEntries& bad) {
  if (is_voc(folder)) return read_voc(folder, part, options, bad);
  if (!is_coco(folder))
    throw MissingFiles(fmt::format(
        "[boxes] {}: expected a folder of VOC (JPEGImages, Annotations, ImageSets/Main) or "
        "of COCO (annotations/instances_train*.json), got neither",
        in_quotes(folder)));
  const CocoFiles files = coco_files(folder, part);
  if (files.list.empty()) return {};
  return read_coco(files.list, files.pictures, options, bad);
}

}  // namespace frugal::data
