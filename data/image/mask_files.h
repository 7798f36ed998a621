// Pictures with masks: files that give a class to each pixel.
#pragma once
#include <string>
#include <vector>

#include "data/dataset.h"
#include "data/image/picture.h"
#include "data/part.h"

namespace frugal::data {

struct MaskFile {
  std::string picture, mask;
};

// Where pictures and masks lie. Names of a mask and its picture are equal up to their endings.
//   images, masks        also image, label; imgs, labels; JPEGImages, SegmentationClass (VOC);
//                        images, annotations (ADE20K)
//   a folder for each part within these two (train, val, test; ADE20K: training, validation), or
//   the two in a folder for each part, or all files together
//   VOC: ImageSets/Segmentation/PART.txt lists the names of a part
//   Cityscapes: leftImg8bit/PART/CITY/X_leftImg8bit.png,
//   gtFine/PART/CITY/X_gtFine_labelTrainIds.png
using MaskPart = Part;
// Sorted by name. Empty: the folder has no such part. Warns of masks without a picture. Errors: a
// picture without a mask, which the message names; no folders of pictures and masks, or several.
std::vector<MaskFile> list_masks(const std::string& folder, MaskPart part);
// All files of a folder without parts. Errors: the same.
std::vector<MaskFile> list_masks(const std::string& folder);

// Which value of a mask is which class.
struct MaskValues {
  // The value of each class; other values do not count. Empty: values are classes, 255 does not
  // count.
  std::vector<int64_t> of_classes = {};
  int64_t classes = 0;
};
// Reads all masks. Masks of 0 and 255 alone have two classes. Otherwise the highest value below 255
// is the last class, and a warning tells of classes below it that no pixel has. Errors: those of
// decode_mask(); no value below 255.
MaskValues find_mask_values(const std::vector<MaskFile>& files);
// Do masks hold 0 and 255 alone, and 255 at least once? Stops at the first other value.
bool are_marks(const std::vector<MaskFile>& files);
// Reads masks until one has a value of a class. Errors: none has, which names values that they
// have.
void check_mask_values(const std::vector<MaskFile>& files, const MaskValues& values);

struct MaskFilesOptions {
  int64_t height = 224, width = 224, channels = 3;  // shape of a sample
  bool random = false;  // training: a random part of the picture, enlarged by `scale`
  double least_scale = 1, most_scale = 1;
  // Are pictures turned as their EXIF orientation says? A mask is turned so that it lies on the
  // picture: it has the size of the stored picture, or of the turned one. Where both have its size,
  // it is a mask of the picture that is used.
  Exif exif = Exif::ignore;
};

// Where windows of `side` begin that cover `extent`, in order. The last one ends with it; a window
// that is larger begins at 0.
std::vector<int64_t> window_starts(int64_t extent, int64_t side);

// Samples [height, width, channels] f32 in [0, 1] with the classes of their pixels.
// Training: a sample of each picture, a random part. Evaluation: the windows that cover the
// pictures; a pixel that two windows show counts in the first of them. Where a picture is smaller
// than a sample, the rest is 0 and does not count.
// Errors: no files, sizes below 1; in get_pixels_into(): those of decode_picture() and
// decode_mask(), a mask of another size than its picture, stored or turned, a value that is no
// class (with its place).
class MaskFiles : public Dataset {
 public:
  MaskFiles(std::vector<MaskFile> files, MaskValues values, const MaskFilesOptions& options);
  int64_t size() const override { return static_cast<int64_t>(windows_.size()); }
  int64_t classes() const override { return values_.classes; }
  Shape sample_shape() const override {
    return {options_.height, options_.width, options_.channels};
  }
  Shape target_shape() const override { return {options_.height, options_.width}; }
  int64_t get_into(int64_t index, RngKey key, float* out) const override;
  void get_pixels_into(int64_t index, RngKey key, float* out, int64_t* target) const override;

 private:
  // A part of a picture. Rows before `first_row` and columns before `first_column` of the part
  // belong to another window.
  struct Window {
    int64_t file = 0, top = 0, left = 0, first_row = 0, first_column = 0;
  };

  std::vector<MaskFile> files_;
  MaskValues values_;
  MaskFilesOptions options_;
  std::vector<Window> windows_;
  std::vector<int64_t> class_of_;  // class of each value of a mask; kIgnored, or -1: no class
};

}  // namespace frugal::data
