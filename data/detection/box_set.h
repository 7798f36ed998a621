// Pictures with boxes: what lists of objects in pictures say, whatever their format.
#pragma once
#include <array>
#include <string>
#include <vector>

#include "core/named_tensors.h"

namespace frugal::data {

// One object of a picture.
struct BoxObject {
  std::array<float, 4> box{};  // x1, y1, x2, y2 in pixels of the picture
  int64_t label = 0;           // class, from 1 on; 0 is the background
  double area = 0;             // in pixels; of the outline where the list has one
  // A group of objects in one box (COCO), or one that is difficult (VOC): nothing is trained on it,
  // and what is found there is neither right nor wrong.
  bool crowd = false;
};

struct BoxPicture {
  std::string path;
  int64_t id = 0;                 // the list's own number, else the place in the list
  int64_t height = 0, width = 0;  // as the list says; 0: it does not
  std::vector<BoxObject> objects;
};

struct BoxSet {
  std::vector<BoxPicture> pictures;
  std::vector<std::string> names;  // of the classes; [0] is the background
  int64_t classes() const { return static_cast<int64_t>(names.size()); }
};

// What to do with entries that are wrong.
class BadEntries {
 public:
  explicit BadEntries(bool skip = false) : skip_(skip) {}
  // Throws Error(message), or counts the entry, and the caller leaves it out.
  void add(const std::string& message);
  int64_t count() const { return count_; }
  // Says how many entries of `what` were left out, and the first of them. Nothing if there are
  // none.
  void warn(const std::string& what) const;

 private:
  bool skip_;
  int64_t count_ = 0;
  std::string first_;
};

enum class BoxPart : uint8_t { train, validation, test };

// VOC: pictures in JPEGImages, an XML file for each in Annotations, and ImageSets/Main/PART.txt (
// train, val, test) with the names of a part. Classes are sorted by name, over all annotations of
// the folder, unless `classes` (without the background) gives them. Corners are counted from 1 in
// the files, so x1 and y1 become 1 less.
// Empty where the folder has no list of that part.
// Errors, or skipped objects and pictures: a file that is missing; XML that is damaged or lacks an
// element; a number that is none; a box without area or outside the picture; an unknown class.
// Errors: a build without pugixml.
BoxSet read_voc(const std::string& folder, BoxPart part, const std::vector<std::string>& classes,
                BadEntries& bad);

// COCO: a JSON file with images, annotations and categories. The ids of the categories are the
// classes, as in torchvision; `pictures` is the folder of the files.
// Errors, or skipped objects and pictures: as above; an annotation of an unknown picture or
// category; an id that is given twice. Errors: a file that is not such a document.
BoxSet read_coco(const std::string& file, const std::string& pictures, BadEntries& bad);

// The parts of a folder in either format. COCO: annotations/instances_NAME.json with the pictures
// in NAME, such as train2017 and val2017; or PART/_annotations.coco.json beside the pictures.
// Errors: a folder in neither format.
bool is_voc(const std::string& folder);
bool is_coco(const std::string& folder);
BoxSet read_boxes(const std::string& folder, BoxPart part, const std::vector<std::string>& classes,
                  BadEntries& bad);

}  // namespace frugal::data
