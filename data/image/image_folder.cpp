#include "data/image/image_folder.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <map>
#include <string_view>

#include "core/error.h"
#include "core/log.h"
#include "core/words/quoted.h"
#include "data/formats/file_bytes.h"
#include "data/formats/table.h"
#include "data/image/draws.h"
#include "data/image/picture.h"
#include "data/image/views.h"
#include "data/missing_files.h"

namespace frugal::data {
namespace {

namespace fs = std::filesystem;

using Labels = std::map<std::string, int64_t, std::less<>>;

Labels labels_of(const std::vector<std::string>& classes) {
  Labels labels;
  for (const std::string& name : classes)
    FRUGAL_CHECK(labels.emplace(name, static_cast<int64_t>(labels.size())).second,
                 "[pictures] expected each class once, got {} twice", in_quotes(name));
  return labels;
}

std::vector<fs::path> sorted_entries(const fs::path& folder) {
  std::error_code error;
  std::vector<fs::path> entries;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
    entries.push_back(it->path());
  if (error)
    throw MissingFiles(fmt::format("[pictures] cannot read the folder {}: {}",
                                   in_quotes(folder.string()), error.message()));
  std::sort(entries.begin(), entries.end());
  return entries;
}

// Is `path` the folder `above`, or below it? Both have no links.
bool is_within(const fs::path& path, const fs::path& above) {
  return std::mismatch(above.begin(), above.end(), path.begin(), path.end()).first == above.end();
}

// Pictures below `folder`, in folders of any depth, sorted by path. `way`: the folders in which it
// is, and it itself, without links. Errors: a link to one of these, or to what holds one of them.
void add_pictures(const fs::path& folder, int64_t label, std::vector<PictureFile>& files,
                  std::vector<fs::path>& way) {
  for (const fs::path& path : sorted_entries(folder)) {
    std::error_code error;
    if (fs::is_directory(path, error)) {
      fs::path place = fs::canonical(path, error);
      if (error) place = path;
      for (const fs::path& above : way)
        FRUGAL_CHECK(
            !is_within(above, place),
            "[pictures] expected folders that end, got the link {}, which leads back to {}",
            in_quotes(path.string()), in_quotes(place.string()));
      way.push_back(place);
      add_pictures(path, label, files, way);
      way.pop_back();
    } else if (has_picture_name(path.string())) {
      files.push_back({path.string(), label});
    }
  }
}
void add_pictures(const fs::path& folder, int64_t label, std::vector<PictureFile>& files) {
  std::error_code error;
  std::vector<fs::path> way{fs::canonical(folder, error)};
  add_pictures(folder, label, files, way);
}

int64_t label_named(const Labels& labels, std::string_view name, const std::string& where) {
  const auto found = labels.find(name);
  FRUGAL_CHECK(found != labels.end(),
               "[pictures] {}: expected one of the {} classes of the training set, got {}", where,
               labels.size(), in_quotes(name));
  return found->second;
}

bool is_whole_number(std::string_view text) {
  return !text.empty() && text.size() <= 9 &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// The classes that labels name: 0 to the highest where all are whole numbers, else the names that
// occur, sorted. lines: of the list, one a label.
std::vector<std::string> classes_of(const std::string& path, std::vector<std::string> names,
                                    const std::vector<int64_t>& lines) {
  if (!std::all_of(names.begin(), names.end(), is_whole_number)) {
    std::sort(names.begin(), names.end());
    names.erase(std::unique(names.begin(), names.end()), names.end());
    return names;
  }
  // ImageNet-21k has 21,841. A list of one line makes the names of all classes below its label.
  constexpr int64_t kMostClasses = 100'000;
  int64_t most = -1;
  for (size_t i = 0; i < names.size(); ++i) {
    const int64_t label = std::stoll(names[i]);
    FRUGAL_CHECK(label < kMostClasses, "[pictures] {}, line {}: expected a label below {}, got {}",
                 in_quotes(path), lines[i], kMostClasses, label);
    most = std::max(most, label);
  }
  std::vector<std::string> classes;
  for (int64_t label = 0; label <= most; ++label) classes.push_back(std::to_string(label));
  return classes;
}

// 007 is 7.
std::string plain(const std::string& name, const Labels& labels) {
  return is_whole_number(name) && !labels.contains(name) ? std::to_string(std::stoll(name)) : name;
}

}  // namespace

std::vector<std::string> list_classes(const std::string& folder) {
  std::vector<std::string> names;
  for (const fs::path& path : sorted_entries(folder)) {
    std::error_code error;
    const std::string name = path.filename().string();
    if (fs::is_directory(path, error) && name[0] != '.') names.push_back(name);
  }
  if (names.empty())
    throw MissingFiles(fmt::format(
        "[pictures] {}: expected a folder for each class, which holds its pictures, got none",
        in_quotes(folder)));
  return names;
}

PictureList list_class_folders(const std::string& folder, const std::vector<std::string>& classes) {
  const std::vector<std::string> names = list_classes(folder);
  PictureList list;
  list.classes = classes.empty() ? names : classes;
  const Labels labels = labels_of(list.classes);
  for (const std::string& name : names) {
    const fs::path path = fs::path(folder) / name;
    const size_t before = list.files.size();
    add_pictures(path, label_named(labels, name, in_quotes(folder)), list.files);
    FRUGAL_CHECK(!classes.empty() || list.files.size() > before,
                 "[pictures] expected pictures (.jpg, .jpeg, .png, .webp, .bmp) in {}, got none",
                 in_quotes(path.string()));
  }
  FRUGAL_CHECK(!list.files.empty(), "[pictures] expected pictures in {}, got none",
               in_quotes(folder));
  return list;
}

namespace {

std::string lower(std::string text) {
  for (char& c : text)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return text;
}

// The lines of a list, and its header where it has one. The path is the first cell of each line.
struct ListFile {
  std::vector<std::string> header;  // names of the columns that are read; empty: there is none
  std::vector<std::vector<std::string>> rows;
  std::vector<int64_t> lines;
};

// Whether the first of the rows names the columns. Whoever writes a list names them as they like,
// so what a header is follows from what it is not.
bool is_header(const std::vector<std::vector<std::string>>& rows, const fs::path& folder) {
  const std::vector<std::string>& first = rows.front();
  const auto is_picture = [&](const std::string& cell) {
    return has_picture_name(cell) || (!cell.empty() && is_file((folder / cell).string()));
  };
  if (lower(first[0]) == "path") return true;
  if (first.size() == 2 && lower(first[0]) == "label" && lower(first[1]) == "path") return true;
  if (is_picture(first[0])) return false;
  return rows.size() > 1 && is_picture(rows[1][0]);
}

ListFile read_list(const std::string& path, const ListColumns& columns) {
  TableReader csv("pictures", path);
  ListFile list;
  while (csv.next()) {
    list.rows.emplace_back(csv.fields().begin(), csv.fields().end());
    list.lines.push_back(csv.line());
  }
  const bool named = !columns.path.empty() || !columns.label.empty();
  if (list.rows.empty() || (!named && !is_header(list.rows, fs::path(path).parent_path())))
    return list;
  list.header = std::move(list.rows.front());
  list.rows.erase(list.rows.begin());
  list.lines.erase(list.lines.begin());
  const auto column = [&](const char* option, const std::string& name) {
    const auto at = std::find(list.header.begin(), list.header.end(), name);
    if (at == list.header.end())
      throw OptionError(
          option, fmt::format("expected a column of {}, which has {}, got {}", in_quotes(path),
                              printable(fmt::format("{}", fmt::join(list.header, ", ")), 300),
                              in_quotes(name)));
    return static_cast<size_t>(at - list.header.begin());
  };
  size_t first = columns.path.empty() ? 0 : column("path", columns.path);
  if (!named && list.header.size() == 2 && lower(list.header[1]) == "path") first = 1;
  std::vector<size_t> order = {first};
  if (!columns.label.empty()) {
    order.push_back(column("label", columns.label));
    if (order[1] == first)
      throw OptionError("label",
                        fmt::format("expected another column of {} than that of the paths, "
                                    "got {}",
                                    in_quotes(path), in_quotes(columns.label)));
  } else {
    for (size_t i = 0; i < list.header.size(); ++i)
      if (i != first) order.push_back(i);
  }
  const size_t width = list.header.size();
  const auto chosen = [&](std::vector<std::string>& row) {
    std::vector<std::string> cells;
    for (const size_t i : order)
      if (i < row.size()) cells.push_back(std::move(row[i]));
    if (columns.label.empty())  // labels beyond the header's columns, such as one each
      for (size_t i = width; i < row.size(); ++i) cells.push_back(std::move(row[i]));
    row = std::move(cells);
  };
  for (size_t i = 0; i < list.rows.size(); ++i) {
    FRUGAL_CHECK(!named || list.rows[i].size() == width,
                 "[pictures] {}, line {}: expected {} columns, as the header has, got {}",
                 in_quotes(path), list.lines[i], width, list.rows[i].size());
    chosen(list.rows[i]);
  }
  chosen(list.header);
  return list;
}

}  // namespace

PictureList read_picture_list(const std::string& path, const std::vector<std::string>& classes,
                              const ListColumns& columns) {
  const fs::path folder = fs::path(path).parent_path();
  const ListFile file = read_list(path, columns);
  std::vector<std::string> names;
  for (size_t i = 0; i < file.rows.size(); ++i) {
    const std::vector<std::string>& row = file.rows[i];
    const auto where = [&] { return fmt::format("{}, line {}", in_quotes(path), file.lines[i]); };
    FRUGAL_CHECK(row.size() <= 2,
                 "[pictures] {}: expected a path and a class, got {} columns; data.path_column and "
                 "data.target say which of them are read, and data.several_labels=true reads "
                 "several labels",
                 where(), row.size());
    FRUGAL_CHECK(row.size() == 2, "[pictures] {}: expected a path and a class, got {} field",
                 where(), row.size());
    FRUGAL_CHECK(!row[0].empty() && !row[1].empty(),
                 "[pictures] {}: expected a path and a class, got {} and {}", where(),
                 in_quotes(row[0]), in_quotes(row[1]));
    names.push_back(row[1]);
  }
  FRUGAL_CHECK(!file.rows.empty(), "[pictures] {}: expected lines of a path and a class, got none",
               in_quotes(path));
  PictureList list;
  list.classes = classes.empty() ? classes_of(path, names, file.lines) : classes;
  const Labels labels = labels_of(list.classes);
  for (size_t i = 0; i < names.size(); ++i) {
    const std::string where = fmt::format("{}, line {}", in_quotes(path), file.lines[i]);
    list.files.push_back(
        {(folder / file.rows[i][0]).string(), label_named(labels, plain(names[i], labels), where)});
  }
  return list;
}

PictureList list_imagenet_validation(const std::string& folder, const std::string& solution,
                                     const std::vector<std::string>& classes) {
  Labels known;  // labels by file name without ending
  {
    const Labels labels = labels_of(classes);
    TableReader csv("pictures", solution);
    while (csv.next()) {
      csv.expect_fields(2);
      const std::string_view name = csv.fields()[0], prediction = csv.fields()[1];
      if (name == "ImageId") continue;
      const std::string_view first = prediction.substr(0, prediction.find(' '));
      known[std::string(name)] =
          label_named(labels, first, fmt::format("{}, line {}", in_quotes(solution), csv.line()));
    }
  }
  PictureList list;
  list.classes = classes;
  for (const fs::path& path : sorted_entries(folder)) {
    if (!has_picture_name(path.string())) continue;
    const auto found = known.find(path.stem().string());
    FRUGAL_CHECK(found != known.end(), "[pictures] expected the class of {} in {}, got none",
                 in_quotes(path.filename().string()), in_quotes(solution));
    list.files.push_back({path.string(), found->second});
  }
  FRUGAL_CHECK(!list.files.empty(), "[pictures] expected pictures in {}, got none",
               in_quotes(folder));
  return list;
}

PictureList read_several_labels(const std::string& path, const std::vector<std::string>& classes,
                                const ListColumns& columns) {
  const fs::path folder = fs::path(path).parent_path();
  const ListFile file = read_list(path, columns);
  const std::vector<std::string>& header = file.header;
  const std::vector<int64_t>& lines = file.lines;
  std::vector<std::string> files;
  std::vector<std::vector<std::string>> names;  // the names of each file's labels
  const bool columns_are_classes =
      header.size() > 2 && std::none_of(header.begin() + 1, header.end(), [](const auto& name) {
        return lower(name).starts_with("label");
      });
  for (size_t row = 0; row < file.rows.size(); ++row) {
    const std::vector<std::string>& cells = file.rows[row];
    FRUGAL_CHECK(!cells[0].empty(), "[pictures] {}, line {}: expected a path, got none",
                 in_quotes(path), lines[row]);
    FRUGAL_CHECK(!columns_are_classes || cells.size() == header.size(),
                 "[pictures] {}, line {}: expected {} fields, got {}", in_quotes(path), lines[row],
                 header.size(), cells.size());
    files.push_back(cells[0]);
    std::vector<std::string>& own = names.emplace_back();
    for (size_t i = 1; i < cells.size(); ++i) {
      if (columns_are_classes) {
        FRUGAL_CHECK(cells[i] == "0" || cells[i] == "1",
                     "[pictures] {}, line {}: expected 0 or 1 in column {}, got {}",
                     in_quotes(path), lines[row], in_quotes(header[i]), in_quotes(cells[i]));
        if (cells[i] == "1") own.push_back(header[i]);
        continue;
      }
      for (size_t begin = 0; begin <= cells[i].size();) {
        const size_t end = std::min(cells[i].find('|', begin), cells[i].size());
        if (end > begin) own.emplace_back(cells[i].substr(begin, end - begin));
        begin = end + 1;
      }
    }
  }
  FRUGAL_CHECK(!files.empty(), "[pictures] {}: expected lines of a path and labels, got none",
               in_quotes(path));
  PictureList list;
  list.classes = classes;
  if (classes.empty() && columns_are_classes) list.classes.assign(header.begin() + 1, header.end());
  if (list.classes.empty()) {
    std::vector<std::string> all;
    std::vector<int64_t> all_lines;
    for (size_t i = 0; i < names.size(); ++i) {
      all.insert(all.end(), names[i].begin(), names[i].end());
      all_lines.resize(all.size(), lines[i]);
    }
    list.classes = classes_of(path, std::move(all), all_lines);
  }
  FRUGAL_CHECK(!list.classes.empty(), "[pictures] {}: expected labels, got none", in_quotes(path));
  const Labels labels = labels_of(list.classes);
  const size_t width = list.classes.size();
  std::map<std::vector<int64_t>, int64_t> rows;  // the row of each set of labels that occurs
  std::vector<float> values;
  for (size_t i = 0; i < files.size(); ++i) {
    const std::string where = fmt::format("{}, line {}", in_quotes(path), lines[i]);
    std::vector<int64_t> own;
    for (const std::string& name : names[i])
      own.push_back(label_named(labels, plain(name, labels), where));
    std::sort(own.begin(), own.end());
    own.erase(std::unique(own.begin(), own.end()), own.end());
    const auto [row, added] = rows.emplace(own, static_cast<int64_t>(rows.size()));
    if (added) {
      values.resize(values.size() + width);
      for (const int64_t label : own)
        values[values.size() - width + static_cast<size_t>(label)] = 1;
    }
    list.files.push_back({(folder / files[i]).string(), row->second});
  }
  list.answers = {std::move(values), static_cast<int64_t>(list.classes.size()),
                  FloatTargets::answers};
  return list;
}

PictureFiles::PictureFiles(PictureList list, const PictureOptions& options)
    : list_(std::move(list)), options_(options) {
  FRUGAL_CHECK(!list_.files.empty(), "[pictures] expected pictures, got none");
  FRUGAL_CHECK(options.height > 0 && options.width > 0,
               "[pictures] expected samples of at least one pixel, got {} x {}", options.height,
               options.width);
  FRUGAL_CHECK(options.channels == 1 || options.channels == 3,
               "[pictures] expected 1 or 3 channels, got {}", options.channels);
  FRUGAL_CHECK(options.least_area >= 0 && options.least_area <= 1,
               "[pictures] expected a least area in [0, 1], got {}", options.least_area);
  const int64_t side = std::max(options.height, options.width);
  if (options_.resize == 0) options_.resize = side;
  FRUGAL_CHECK(options_.resize >= side,
               "[pictures] expected a resize of at least {}, the sample's size, got {}", side,
               options_.resize);
  const int64_t most = list_.answers.defined() ? list_.answers.count() : classes();
  for (const PictureFile& file : list_.files)
    FRUGAL_CHECK(file.label >= 0 && file.label < most,
                 "[pictures] {}: expected a label below {}, got {}", in_quotes(file.path), most,
                 file.label);
}

void PictureFiles::read_into(int64_t index, RngKey key, float* out) const {
  const std::string& path = list_.files[static_cast<size_t>(index)].path;
  const std::vector<uint8_t> bytes = read_file("pictures", path);
  PictureReader reader(bytes, path, options_.exif);
  const PictureInfo info = reader.info();
  const int64_t height = options_.height, width = options_.width;
  const ViewOptions view{height, width, options_.channels, options_.resize};
  RectangleOptions part;
  part.least_area = options_.least_area;
  const PictureBox box = options_.least_area > 0 ? random_part(key, info.height, info.width, part)
                                                 : crop_box(info, view, Crop::centre);
  decode_parts(reader, {&box, 1}, view, out);
}

int64_t PictureFiles::bad() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int64_t>(bad_.size());
}

void PictureFiles::note_bad(int64_t index, const std::string& why) const {
  constexpr int64_t kListed = 10;  // files that are named; beyond, each tenth power is told
  const std::lock_guard lock(mutex_);
  if (!bad_.insert(index).second) return;
  const auto count = static_cast<int64_t>(bad_.size());
  if (count <= kListed)
    log().warn("{}; the sample does not count (bad files so far: {})", why, count);
  else if (count == 100 || count == 1000 || count % 10000 == 0)
    log().warn("[pictures] bad files so far: {}", count);
}

int64_t PictureFiles::get_into(int64_t index, RngKey key, float* out) const {
  if (!options_.skip_bad) {
    read_into(index, key, out);
    return list_.files[static_cast<size_t>(index)].label;
  }
  for (int64_t i = 0; i < size(); ++i) {
    const int64_t at = (index + i) % size();
    try {
      read_into(at, key, out);
    } catch (const Error& error) {
      note_bad(at, error.what());
      continue;
    }
    return i == 0 ? list_.files[static_cast<size_t>(at)].label : kIgnored;
  }
  throw Error(fmt::format("[pictures] expected a good file among {}, got none", size()));
}

}  // namespace frugal::data
