// Pictures with boxes: what lists of objects in pictures say, whatever their format.
#pragma once
#include <array>
#include <string>
#include <vector>

#include "core/named_tensors.h"
#include "data/image/picture.h"
#include "data/part.h"

namespace frugal::data {

// One object of a picture.
struct BoxObject {
  std::array<float, 4> box{};  // x1, y1, x2, y2 in pixels of the picture
  int64_t label = 0;           // class, from 1 on; 0 is the background
  double area = 0;             // area in pixels; that of the outline where the list has one
  // Nothing is trained on either of these. In an evaluation, what is found there is neither right
  // nor wrong.
  bool crowd = false;      // COCO: a group of objects in one box
  bool difficult = false;  // VOC: an object that people find hard to see
  bool counts() const { return !crowd && !difficult; }
};

struct BoxPicture {
  std::string path;
  int64_t id = 0;                 // the list's own number; the place in the list where it has none
  int64_t height = 0, width = 0;  // size of the picture that the boxes are about; 0: not known
  std::vector<BoxObject> objects;
};

// The classes of a network that finds boxes, in the order of its outputs.
struct BoxClasses {
  std::vector<std::string> names;  // [0] is the background
  // COCO: the number that the list of the training set gives each class; [0] means nothing. Empty:
  // classes have no numbers of their own.
  std::vector<int64_t> ids;
  int64_t classes() const { return static_cast<int64_t>(names.size()); }
  bool operator==(const BoxClasses&) const = default;
};

struct BoxSet : BoxClasses {
  std::vector<BoxPicture> pictures;
};

// What to do with entries that are wrong, and what was mended.
class BadEntries {
 public:
  explicit BadEntries(bool skip = false) : skip_(skip) {}
  // Throws Error(message), or counts the entry, and the caller leaves out the picture that it
  // belongs to: without the object, the object's pixels would count as background.
  void add(const std::string& message);
  int64_t count() const { return bad_.count; }
  // A box that reached up to a pixel beyond its picture and now ends at the edge; `where` names it.
  void add_clipped(const std::string& where);
  int64_t clipped() const { return clipped_.count; }
  // A box without area, which shows no object and is left out.
  void add_empty(const std::string& where);
  int64_t empty() const { return empty_.count; }
  // Says of each kind how many there are in `what`, and names the first. Nothing if there are none.
  void warn(const std::string& what) const;

 private:
  struct Kind {
    int64_t count = 0;
    std::string first = {};
    void add(const std::string& message) {
      if (count++ == 0) first = message;
    }
  };
  bool skip_;
  Kind bad_, clipped_, empty_;
};

using BoxPart = Part;

// How lists are read.
struct BoxListOptions {
  // The classes of the training set, or of a run. Without names: this list is the training set's,
  // and says which classes there are.
  BoxClasses known = {};
  // Are pictures turned as their EXIF orientation says? Then the size of a picture whose list does
  // not say it is that of the turned picture.
  Exif exif = Exif::ignore;
};

// VOC: pictures in JPEGImages with any ending of a picture, an XML file for each in Annotations,
// and ImageSets/Main/PART.txt (train, val, test) with the names of a part. Classes are sorted by
// name, over all annotations of the folder, unless they are known. Corners are counted from 1 in
// the files, so x1 and y1 become 1 less. Where the file has no size, or one of 0, it is the
// picture's.
// Empty where the folder has no list of that part.
// Errors, or skipped pictures: a file that is missing; XML that is damaged or lacks an element; a
// number that is none; a box that ends before it begins, or more than a pixel outside the picture;
// an unknown class.
// Errors: a build without pugixml.
BoxSet read_voc(const std::string& folder, BoxPart part, const BoxListOptions& options,
                BadEntries& bad);

// COCO: a JSON file with images, annotations and categories; `pictures` is the folder of the files.
// The classes are the categories by rising id, from 1 on, whatever the ids are. The 80 categories
// of COCO itself are an exception: their ids are the classes, of 91, so that torchvision's weights
// fit. Where classes are known, a category is the class of its name; where two classes have that
// name, it is the one of its id. Errors, or skipped pictures: as above; an annotation of an unknown
// picture or category, or of a category that is not among the known classes; an id that is given
// twice. Errors: a file that is not such a document; a category that fits two classes.
BoxSet read_coco(const std::string& file, const std::string& pictures,
                 const BoxListOptions& options, BadEntries& bad);

// The parts of a folder in either format. COCO: annotations/instances_NAME.json with the pictures
// in NAME, such as train2017 and val2017; or PART/_annotations.coco.json beside the pictures.
// Errors: a folder in neither format.
bool is_voc(const std::string& folder);
bool is_coco(const std::string& folder);
BoxSet read_boxes(const std::string& folder, BoxPart part, const BoxListOptions& options,
                  BadEntries& bad);

}  // namespace frugal::data
