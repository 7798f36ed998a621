#include <algorithm>
#include <filesystem>
#include <limits>
#include <map>
#include <set>
#include <unordered_map>

#include "core/words/quoted.h"
#include "data/detection/box_checks.h"
#include "data/formats/file_bytes.h"
#include "data/formats/json_strict.h"

namespace frugal::data {
namespace {

using Json = nlohmann::json;
constexpr size_t kLeftOut = std::numeric_limits<size_t>::max();

// An entry of one of the document's lists; errors name the file, the list and the place in it.
class Entry {
 public:
  Entry(const Json& json, std::string where) : json_(json), where_(std::move(where)) {
    FRUGAL_CHECK(json.is_object(), "{}: expected an object, got {}", where_, json.type_name());
  }
  const Json& at(const char* key) const {
    const auto found = json_.find(key);
    FRUGAL_CHECK(found != json_.end(), "{}: expected the key {}, got none", where_, key);
    return *found;
  }
  // There, and not null.
  bool has(const char* key) const {
    const auto found = json_.find(key);
    return found != json_.end() && !found->is_null();
  }
  // 0 or 1, or what other tools write for them.
  bool flag(const char* key) const {
    if (!has(key)) return false;
    const Json& value = at(key);
    return value.is_boolean() ? value.get<bool>() : whole(key) != 0;
  }
  int64_t whole(const char* key) const {
    const Json& value = at(key);
    FRUGAL_CHECK(value.is_number_integer() &&
                     (!value.is_number_unsigned() || value.get<uint64_t>() <= uint64_t{1} << 62),
                 "{}: expected a whole number as {}, got {}", where_, key,
                 in_quotes(value.dump(-1, ' ', false, Json::error_handler_t::replace)));
    return value.get<int64_t>();
  }
  double number(const char* key) const {
    const Json& value = at(key);
    FRUGAL_CHECK(value.is_number(), "{}: expected a number as {}, got {}", where_, key,
                 value.type_name());
    return value.get<double>();
  }
  std::string text(const char* key) const {
    const Json& value = at(key);
    FRUGAL_CHECK(value.is_string(), "{}: expected a text as {}, got {}", where_, key,
                 value.type_name());
    return value.get<std::string>();
  }
  std::array<double, 4> four(const char* key) const {
    const Json& value = at(key);
    FRUGAL_CHECK(value.is_array() && value.size() == 4 &&
                     std::all_of(value.begin(), value.end(),
                                 [](const Json& each) { return each.is_number(); }),
                 "{}: expected 4 numbers as {}, got {}", where_, key,
                 in_quotes(value.dump(-1, ' ', false, Json::error_handler_t::replace)));
    return {value[0].get<double>(), value[1].get<double>(), value[2].get<double>(),
            value[3].get<double>()};
  }

 private:
  const Json& json_;
  std::string where_;
};

class CocoReader {
 public:
  CocoReader(const std::string& file, BadEntries& bad) : file_(file), bad_(bad) {
    const std::vector<uint8_t> bytes = read_file("coco", file);
    try {
      json_ = parse_json<Json>({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    } catch (const JsonError& e) {
      throw Error(fmt::format("[coco] {}: {}{}{}", in_quotes(file), e.place(),
                              e.place().empty() ? "" : ": ", e.what()));
    }
    FRUGAL_CHECK(json_.is_object(), "[coco] {}: expected an object, got {}", in_quotes(file),
                 json_.type_name());
  }
  // Calls f(entry, where) for each entry of a list; what f throws is a bad entry.
  template <class F>
  void each(const char* list, F f) const {
    const auto found = json_.find(list);
    FRUGAL_CHECK(found != json_.end() && found->is_array(),
                 "[coco] {}: expected a list {}, got none", in_quotes(file_), list);
    for (size_t i = 0; i < found->size(); ++i) {
      const std::string where = fmt::format("[coco] {}, {}[{}]", in_quotes(file_), list, i);
      try {
        f(Entry((*found)[i], where), where);
      } catch (const Error& e) {
        bad_.add(e.what());
      }
    }
  }

 private:
  std::string file_;
  BadEntries& bad_;
  Json json_;
};

// A category of a list.
struct CocoCategory {
  int64_t id = 0;
  std::string name;
};

// The ids of COCO's 80 categories, which torchvision's networks have as outputs: 1 to 90 without
// these.
bool are_coco_itself(const std::vector<CocoCategory>& categories) {
  static const std::set<int64_t> gaps = {12, 26, 29, 30, 45, 66, 68, 69, 71, 83};
  constexpr int64_t kLast = 90;
  return categories.size() == kLast - gaps.size() &&
         std::all_of(categories.begin(), categories.end(), [](const CocoCategory& each) {
           return each.id >= 1 && each.id <= kLast && !gaps.contains(each.id);
         });
}

// The classes that a training set makes of its categories, which are sorted by id.
BoxClasses classes_made_of(const std::vector<CocoCategory>& categories) {
  const bool ids_are_classes = are_coco_itself(categories);
  BoxClasses classes;
  classes.names = {"background"};
  classes.ids = {0};
  for (const CocoCategory& category : categories) {
    if (ids_are_classes)
      for (int64_t gap = classes.classes(); gap < category.id; ++gap) {
        classes.names.emplace_back();
        classes.ids.push_back(gap);
      }
    classes.names.push_back(category.name);
    classes.ids.push_back(category.id);
  }
  return classes;
}

constexpr int64_t kNoClass = -1;

// The class of each category, by id; kNoClass: it is not among the known ones.
std::map<int64_t, int64_t> classes_of_ids(const std::vector<CocoCategory>& categories,
                                          const BoxClasses& classes, const std::string& file) {
  std::unordered_map<std::string, std::vector<int64_t>> named;
  for (int64_t label = 1; label < classes.classes(); ++label)
    named[classes.names[static_cast<size_t>(label)]].push_back(label);
  std::unordered_map<std::string, int64_t> own;  // how many categories have the name
  for (const CocoCategory& category : categories) ++own[category.name];
  std::map<int64_t, int64_t> found;
  for (const CocoCategory& category : categories) {
    const auto labels = named.find(category.name);
    if (labels == named.end()) {
      found[category.id] = kNoClass;
      continue;
    }
    if (labels->second.size() == 1 && own[category.name] == 1) {
      found[category.id] = labels->second.front();
      continue;
    }
    const auto same_id =
        std::find_if(labels->second.begin(), labels->second.end(), [&](int64_t label) {
          return !classes.ids.empty() && classes.ids[static_cast<size_t>(label)] == category.id;
        });
    FRUGAL_CHECK(same_id != labels->second.end(),
                 "[coco] {}: expected categories of different names, or with the ids of the "
                 "training set, got {} several times, with the id {}",
                 in_quotes(file), in_quotes(category.name), category.id);
    found[category.id] = *same_id;
  }
  return found;
}

}  // namespace

BoxSet read_coco(const std::string& file, const std::string& pictures,
                 const BoxListOptions& options, BadEntries& bad) {
  const CocoReader reader(file, bad);
  std::vector<CocoCategory> categories;
  std::set<int64_t> ids;
  reader.each("categories", [&](const Entry& entry, const std::string& where) {
    const int64_t id = entry.whole("id");
    std::string name = entry.text("name");
    FRUGAL_CHECK(ids.insert(id).second, "{}: expected each id once, got {} again", where, id);
    categories.push_back({id, std::move(name)});
  });
  FRUGAL_CHECK(!categories.empty(), "[coco] {}: expected categories, got none", in_quotes(file));
  std::sort(categories.begin(), categories.end(),
            [](const CocoCategory& a, const CocoCategory& b) { return a.id < b.id; });
  BoxSet set;
  static_cast<BoxClasses&>(set) =
      options.known.names.empty() ? classes_made_of(categories) : options.known;
  const std::map<int64_t, int64_t> label_of = classes_of_ids(categories, set, file);
  std::unordered_map<int64_t, size_t> place_of;
  reader.each("images", [&](const Entry& entry, const std::string& where) {
    BoxPicture picture;
    picture.id = entry.whole("id");
    const auto [place, fresh] = place_of.emplace(picture.id, kLeftOut);
    FRUGAL_CHECK(fresh, "{}: expected each id once, got {} again", where, picture.id);
    if (entry.has("height") && entry.has("width")) {
      picture.height = entry.whole("height");
      picture.width = entry.whole("width");
    }
    picture.path = (std::filesystem::path(pictures) / entry.text("file_name")).string();
    FRUGAL_CHECK(picture.height >= 0 && picture.width >= 0,
                 "{}: expected a picture of at least one pixel, got {} x {}", where, picture.width,
                 picture.height);
    FRUGAL_CHECK(is_file(picture.path), "{}: expected the picture {}, got no such file", where,
                 in_quotes(picture.path));
    complete_size(picture, options.exif);
    place->second = set.pictures.size();
    set.pictures.push_back(std::move(picture));
  });
  std::vector<bool> damaged(set.pictures.size());
  reader.each("annotations", [&](const Entry& entry, const std::string& where) {
    const int64_t id = entry.whole("image_id");
    const auto picture = place_of.find(id);
    FRUGAL_CHECK(picture != place_of.end(), "{}: expected the id of a picture, got {}", where, id);
    if (picture->second == kLeftOut) return;
    BoxPicture& own = set.pictures[picture->second];
    try {
      BoxObject object;
      const int64_t category = entry.whole("category_id");
      const auto label = label_of.find(category);
      FRUGAL_CHECK(label != label_of.end(), "{}: expected the id of a category, got {}", where,
                   category);
      const auto name = [&] {
        return std::lower_bound(categories.begin(), categories.end(), category,
                                [](const CocoCategory& a, int64_t b) { return a.id < b; })
            ->name;
      };
      FRUGAL_CHECK(label->second != kNoClass,
                   "{}: expected one of the {} classes of the training set, got {}", where,
                   set.classes() - 1, in_quotes(name()));
      object.label = label->second;
      const std::array<double, 4> box = entry.four("bbox");
      object.box = {static_cast<float>(box[0]), static_cast<float>(box[1]),
                    static_cast<float>(box[0] + box[2]), static_cast<float>(box[1] + box[3])};
      object.area = entry.has("area") ? entry.number("area") : box[2] * box[3];
      FRUGAL_CHECK(object.area >= 0 || !entry.has("area"),
                   "{}: expected an area of at least 0, got {}", where, object.area);
      object.crowd = entry.flag("iscrowd");
      try {
        add_object(object, where, own, bad);
      } catch (const Error& e) {
        throw Error(fmt::format("{}: {}", where, e.what()));
      }
    } catch (const Error&) {
      damaged[picture->second] = true;
      throw;
    }
  });
  size_t kept = 0;
  for (size_t i = 0; i < set.pictures.size(); ++i)
    if (!damaged[i]) std::swap(set.pictures[kept++], set.pictures[i]);
  set.pictures.resize(kept);
  return set;
}

}  // namespace frugal::data
