#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "core/quoted.h"
#include "data/detection/box_checks.h"
#include "data/formats/file_bytes.h"
#include "data/formats/json_strict.h"

namespace frugal::data {
namespace {

using Json = nlohmann::json;
constexpr int64_t kMostClasses = 1 << 20;  // ids beyond make no table of names

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
  bool has(const char* key) const { return json_.contains(key); }
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

}  // namespace

BoxSet read_coco(const std::string& file, const std::string& pictures, BadEntries& bad) {
  const CocoReader reader(file, bad);
  BoxSet set;
  std::set<int64_t> categories;
  reader.each("categories", [&](const Entry& entry, const std::string& where) {
    const int64_t id = entry.whole("id");
    FRUGAL_CHECK(id >= 1 && id < kMostClasses, "{}: expected an id in [1, {}), got {}", where,
                 kMostClasses, id);
    FRUGAL_CHECK(categories.insert(id).second, "{}: expected each id once, got {} again", where,
                 id);
    if (set.classes() <= id) set.names.resize(static_cast<size_t>(id) + 1);
    set.names[static_cast<size_t>(id)] = entry.text("name");
  });
  FRUGAL_CHECK(!categories.empty(), "[coco] {}: expected categories, got none", in_quotes(file));
  set.names[0] = "background";
  std::map<int64_t, size_t> place_of;
  reader.each("images", [&](const Entry& entry, const std::string& where) {
    BoxPicture picture;
    picture.id = entry.whole("id");
    picture.height = entry.whole("height");
    picture.width = entry.whole("width");
    picture.path = (std::filesystem::path(pictures) / entry.text("file_name")).string();
    FRUGAL_CHECK(picture.height >= 1 && picture.width >= 1,
                 "{}: expected a picture of at least one pixel, got {} x {}", where, picture.width,
                 picture.height);
    FRUGAL_CHECK(is_file(picture.path), "{}: expected the picture {}, got no such file", where,
                 in_quotes(picture.path));
    FRUGAL_CHECK(place_of.emplace(picture.id, set.pictures.size()).second,
                 "{}: expected each id once, got {} again", where, picture.id);
    set.pictures.push_back(std::move(picture));
  });
  reader.each("annotations", [&](const Entry& entry, const std::string& where) {
    const auto picture = place_of.find(entry.whole("image_id"));
    FRUGAL_CHECK(picture != place_of.end(), "{}: expected the id of a picture, got {}", where,
                 entry.whole("image_id"));
    BoxObject object;
    object.label = entry.whole("category_id");
    FRUGAL_CHECK(categories.contains(object.label), "{}: expected the id of a category, got {}",
                 where, object.label);
    const std::array<double, 4> box = entry.four("bbox");
    object.box = {static_cast<float>(box[0]), static_cast<float>(box[1]),
                  static_cast<float>(box[0] + box[2]), static_cast<float>(box[1] + box[3])};
    object.area = entry.has("area") ? entry.number("area") : box[2] * box[3];
    object.crowd = entry.has("iscrowd") && entry.whole("iscrowd") != 0;
    BoxPicture& own = set.pictures[picture->second];
    const std::string fault = fault_of(object.box, own.height, own.width);
    FRUGAL_CHECK(fault.empty(), "{}: {}", where, fault);
    own.objects.push_back(object);
  });
  return set;
}

}  // namespace frugal::data
