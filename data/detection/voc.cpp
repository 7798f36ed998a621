#include <algorithm>
#include <charconv>
#include <filesystem>
#include <map>
#include <set>

#include "core/words/quoted.h"
#include "data/detection/box_checks.h"
#include "data/formats/file_bytes.h"
#include "data/image/picture_stems.h"

#ifdef FRUGAL_XML
#include <pugixml.hpp>
#endif

namespace frugal::data {

#ifdef FRUGAL_XML
namespace {

namespace fs = std::filesystem;

// An object as its file has it.
struct NamedObject {
  std::string name, where;
  BoxObject object;
};

struct Annotation {
  int64_t height = 0, width = 0;  // 0: the file does not say
  std::vector<NamedObject> objects;
};

constexpr const char* kBlanks = " \t\r\n";

std::string trimmed(const std::string& text) {
  const size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string::npos) return "";
  return text.substr(begin, text.find_last_not_of(kBlanks) + 1 - begin);
}

// Errors name the element and the file.
class VocReader {
 public:
  explicit VocReader(const std::string& path) : path_(path) {
    const std::vector<uint8_t> bytes = read_file("voc", path);
    const pugi::xml_parse_result result = document_.load_buffer(bytes.data(), bytes.size());
    FRUGAL_CHECK(result, "[voc] {}: expected XML, got an error at byte {}: {}", in_quotes(path),
                 result.offset, result.description());
  }
  pugi::xml_node root() const { return child(document_, "annotation", "the document"); }
  pugi::xml_node child(const pugi::xml_node& parent, const char* name,
                       const std::string& where) const {
    const pugi::xml_node found = parent.child(name);
    FRUGAL_CHECK(found, "[voc] {}: expected <{}> in {}, got none", in_quotes(path_), name, where);
    FRUGAL_CHECK(!found.next_sibling(name) || std::string_view(name) == "object",
                 "[voc] {}: expected one <{}> in {}, got several", in_quotes(path_), name, where);
    return found;
  }
  double number(const pugi::xml_node& parent, const char* name, const std::string& where) const {
    return number_in(child(parent, name, where).text().get(), name, where);
  }
  // 0 where the element is missing or empty.
  double number_or_0(const pugi::xml_node& parent, const char* name,
                     const std::string& where) const {
    if (!parent.child(name)) return 0;
    const std::string text = child(parent, name, where).text().get();
    return trimmed(text).empty() ? 0 : number_in(text, name, where);
  }

 private:
  double number_in(const std::string& text, const char* name, const std::string& where) const {
    const std::string digits = trimmed(text);
    const char* const end = digits.data() + digits.size();
    double value = 0;
    const auto read = std::from_chars(digits.data(), end, value);
    FRUGAL_CHECK(read.ec == std::errc() && read.ptr == end && std::isfinite(value),
                 "[voc] {}: expected a number in <{}> of {}, got {}", in_quotes(path_), name, where,
                 in_quotes(text));
    return value;
  }
  std::string path_;
  pugi::xml_document document_;
};

Annotation read_annotation(const std::string& path) {
  const VocReader reader(path);
  const pugi::xml_node root = reader.root();
  pugi::xml_node size = root.child("size");
  if (size) size = reader.child(root, "size", "<annotation>");
  Annotation annotation;
  const double height = reader.number_or_0(size, "height", "<size>");
  const double width = reader.number_or_0(size, "width", "<size>");
  constexpr double kMost = 1 << 30;
  FRUGAL_CHECK(height >= 0 && width >= 0 && height <= kMost && width <= kMost,
               "[voc] {}: expected a picture of at least one pixel, got {} x {}", in_quotes(path),
               width, height);
  annotation.height = static_cast<int64_t>(height);
  annotation.width = static_cast<int64_t>(width);
  int64_t place = 0;
  for (const pugi::xml_node& node : root.children("object")) {
    NamedObject found;
    found.where = fmt::format("object {}", ++place);
    const std::string& where = found.where;
    found.name = trimmed(reader.child(node, "name", where).text().get());
    const pugi::xml_node box = reader.child(node, "bndbox", where);
    // The first pixel has the number 1, and the last one belongs to the box.
    found.object.box = {static_cast<float>(reader.number(box, "xmin", where) - 1),
                        static_cast<float>(reader.number(box, "ymin", where) - 1),
                        static_cast<float>(reader.number(box, "xmax", where)),
                        static_cast<float>(reader.number(box, "ymax", where))};
    found.object.difficult = reader.number_or_0(node, "difficult", where) != 0;
    annotation.objects.push_back(std::move(found));
  }
  return annotation;
}

std::vector<std::string> names_in(const std::string& list) {
  std::vector<std::string> names;
  std::string line;
  std::vector<uint8_t> bytes = read_file("voc", list);
  bytes.push_back('\n');
  for (const uint8_t byte : bytes) {
    if (byte != '\n') {
      line += static_cast<char>(byte);
      continue;
    }
    const size_t end = line.find_last_not_of(" \t\r");
    if (end != std::string::npos) names.push_back(line.substr(0, end + 1));
    line.clear();
  }
  return names;
}

// The classes of all annotations of a folder.
std::vector<std::string> classes_in(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; entry != end && !error;
       entry.increment(error))
    if (entry->path().extension() == ".xml") files.push_back(entry->path());
  FRUGAL_CHECK(!error, "[voc] cannot read {}: {}", in_quotes(folder.string()), error.message());
  std::set<std::string> names;
  for (const fs::path& file : files) {
    const std::vector<uint8_t> bytes = read_file("voc", file.string());
    pugi::xml_document document;
    // A damaged file is found where its picture is read.
    if (!document.load_buffer(bytes.data(), bytes.size())) continue;
    for (const pugi::xml_node& node : document.child("annotation").children("object"))
      names.insert(trimmed(node.child("name").text().get()));
  }
  names.erase("");
  return {names.begin(), names.end()};
}

const char* list_of(BoxPart part) {
  switch (part) {
    case BoxPart::train:
      return "train.txt";
    case BoxPart::validation:
      return "val.txt";
    case BoxPart::test:
      break;
  }
  return "test.txt";
}

}  // namespace

BoxSet read_voc(const std::string& folder, BoxPart part, const BoxListOptions& options,
                BadEntries& bad) {
  const fs::path root(folder);
  const fs::path list = root / "ImageSets" / "Main" / list_of(part);
  if (!is_file(list.string())) return {};
  BoxSet set;
  if (options.known.names.empty()) {
    set.names = classes_in(root / "Annotations");
    FRUGAL_CHECK(!set.names.empty(), "[voc] {}: expected objects, got none",
                 in_quotes((root / "Annotations").string()));
    set.names.insert(set.names.begin(), "background");
  } else {
    static_cast<BoxClasses&>(set) = options.known;
  }
  std::map<std::string, int64_t> label_of;
  for (size_t i = 1; i < set.names.size(); ++i) label_of[set.names[i]] = static_cast<int64_t>(i);
  const fs::path pictures = root / "JPEGImages";
  const auto path_of = pictures_by_stem("voc", pictures.string());
  int64_t line = 0;
  std::set<std::string> listed;
  for (const std::string& stem : names_in(list.string())) {
    ++line;
    BoxPicture picture;
    picture.id = line;
    const std::string file = (root / "Annotations" / (stem + ".xml")).string();
    try {
      FRUGAL_CHECK(listed.insert(stem).second, "expected each picture once, got {} again",
                   in_quotes(stem));
      const auto path = path_of.find(stem);
      FRUGAL_CHECK(path != path_of.end(),
                   "expected the picture {} (.jpg, .jpeg, .png, .webp or .bmp) in {}, got no such "
                   "file",
                   in_quotes(stem), in_quotes(pictures.string()));
      picture.path = path->second;
      const Annotation annotation = read_annotation(file);
      picture.height = annotation.height;
      picture.width = annotation.width;
      complete_size(picture, options.exif);
      for (const auto& [object_name, where, object] : annotation.objects) {
        const auto label = label_of.find(object_name);
        FRUGAL_CHECK(label != label_of.end(), "[voc] {}: expected one of the {} classes, got {}",
                     in_quotes(file), set.classes() - 1, in_quotes(object_name));
        BoxObject own = object;
        own.label = label->second;
        const std::string place = fmt::format("[voc] {}, {}", in_quotes(file), where);
        try {
          add_object(own, place, picture, bad);
        } catch (const Error& e) {
          throw Error(fmt::format("{}: {}", place, e.what()));
        }
      }
      for (BoxObject& object : picture.objects)
        object.area = static_cast<double>(object.box[2] - object.box[0]) *
                      static_cast<double>(object.box[3] - object.box[1]);
    } catch (const Error& e) {
      bad.add(fmt::format("[voc] {}, line {}: {}", in_quotes(list.string()), line, e.what()));
      continue;
    }
    set.pictures.push_back(std::move(picture));
  }
  return set;
}
#else
BoxSet read_voc(const std::string& folder, BoxPart, const BoxListOptions&, BadEntries&) {
  throw Error(
      fmt::format("[voc] {}: this build cannot read XML; install libpugixml-dev and "
                  "configure once more",
                  in_quotes(folder)));
}
#endif

}  // namespace frugal::data
