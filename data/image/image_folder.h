// Data sets of picture files: folders of classes, lists, and what makes samples of one size.
#pragma once
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "data/image/picture.h"

namespace frugal::data {

struct PictureFile {
  std::string path;
  int64_t label = 0;
};

// Picture files and the names of their classes; a label is the index of a name.
struct PictureList {
  std::vector<PictureFile> files;
  std::vector<std::string> classes;
  // For pictures with several labels: rows of a 0 or 1 for each class. A label is then the index of
  // a row; pictures with equal labels share it.
  TargetRows answers = {};
};

// FOLDER/CLASS/.../NAME.jpg (also .jpeg, .png, .webp, .bmp): each folder in `folder` is a class.
// Classes and files are sorted by name, so labels equal those of torchvision's ImageFolder. With
// `classes`, as of the training set, these are the classes and a folder of another name is an
// error. Errors: no such folder; no classes; a class without pictures, unless `classes` are given.
PictureList list_class_folders(const std::string& folder,
                               const std::vector<std::string>& classes = {});

// The names of the folders in `folder`, sorted: its classes. Errors: no such folder, none in it.
std::vector<std::string> list_classes(const std::string& folder);

// Which columns of a list are read, by their names in its header. Empty: the first one has paths,
// and the others labels.
struct ListColumns {
  std::string path = {}, label = {};
};

// A CSV file of two columns, path and class, with or without a header. A header is a first line
// whose path is neither a file nor named as a picture is, where the next line's is; or it says path
// and label, in any case and order. In a list with more columns, `columns` says which are read;
// then it must have a header. Paths are relative to the list's folder. A class is a name; where all
// of them are whole numbers, the label itself. With `classes`, as of the training set, a class of
// another name is an error.
// Errors: no such file, a line without two columns or of a class that is not known, naming the
// line; a column that the header has not.
PictureList read_picture_list(const std::string& path, const std::vector<std::string>& classes = {},
                              const ListColumns& columns = {});

// A list in which a picture has any number of labels. A line is a path and labels, each in a column
// or with "|" between them; or, with a header of more than two columns of which no label's begins
// with "label", a column of 0 and 1 for each class, in this order. With columns.label, the labels
// of that column alone. Errors: as above.
PictureList read_several_labels(const std::string& path,
                                const std::vector<std::string>& classes = {},
                                const ListColumns& columns = {});

// ImageNet's validation folder as it is unpacked: FOLDER/ILSVRC2012_val_*.JPEG, and the class of
// each in `solution` (LOC_val_solution.csv: "ILSVRC2012_val_00048981,n03995372 85 1 499 272").
// Errors: as above; a picture that the file does not name.
PictureList list_imagenet_validation(const std::string& folder, const std::string& solution,
                                     const std::vector<std::string>& classes);

struct PictureOptions {
  int64_t height = 224, width = 224, channels = 3;  // shape of a sample
  // Training: a random part, `least_area` to 1 of the picture's area with sides in a ratio of 3/4
  // to 4/3, is resized to the sample (torchvision's RandomResizedCrop). 0: as for evaluation.
  double least_area = 0;
  // Evaluation: the shorter side is resized to `resize` pixels and the centre is cut out. 0: the
  // shorter side becomes the sample's.
  int64_t resize = 0;
  Exif exif = Exif::turn;
  // A file that is missing or damaged: an error that names it, or (true) a warning and a sample
  // that does not count: its label is kIgnored, and its pixels are those of the next good file.
  bool skip_bad = false;
};

// Samples [height, width, channels] f32 in [0, 1]; files are read and decoded at each call.
// Errors: an empty list, a size below 1, resize below the sample's size, least_area outside [0, 1];
// in get_into(): those of decode_picture(), or no good file at all.
class PictureFiles : public Dataset {
 public:
  PictureFiles(PictureList list, const PictureOptions& options);
  int64_t size() const override { return static_cast<int64_t>(list_.files.size()); }
  int64_t classes() const override { return static_cast<int64_t>(list_.classes.size()); }
  Shape sample_shape() const override {
    return {options_.height, options_.width, options_.channels};
  }
  TargetRows target_rows() const override { return list_.answers; }
  int64_t get_into(int64_t index, RngKey key, float* out) const override;

  const PictureList& list() const { return list_; }
  int64_t bad() const;  // files found so far that are missing or damaged

 private:
  void read_into(int64_t index, RngKey key, float* out) const;
  void note_bad(int64_t index, const std::string& why) const;

  PictureList list_;
  PictureOptions options_;
  mutable std::mutex mutex_;  // guards what follows
  mutable std::set<int64_t> bad_;
};

}  // namespace frugal::data
