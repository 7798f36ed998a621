// BoxBatches: batches of pictures of different sizes, with boxes.
#pragma once
#include <memory>
#include <vector>

#include "data/batch_source.h"
#include "data/detection/box_set.h"

namespace frugal::data {

// In pixels.
struct PictureSize {
  int64_t height = 0, width = 0;
};

template <class Job>
class MadeAhead;

struct BoxBatchOptions {
  int64_t batch_size = 2;
  bool shuffle = true;
  bool drop_last = false;
  uint64_t seed = 0;
  // How pictures are resized; their shape stays. Letterbox: each fits into height x width, which
  // all batches have. Else the shorter side becomes one of `sides`, unless the longer one would
  // exceed `longest`; a batch is as large as its largest picture, rounded up to `multiple`.
  bool letterbox = true;
  int64_t height = 512, width = 512;
  std::vector<int64_t> sides = {800};
  int64_t longest = 1333, multiple = 32;
  // Training: a random one of `sides` (else the last of them), pictures are mirrored with
  // probability flip, and objects that do not count are left out.
  bool training = true;
  double flip = 0.5;
  int64_t channels = 3;
  std::vector<double> mean = {0.485, 0.456, 0.406}, std = {0.229, 0.224, 0.225};
  // Are pictures turned as their EXIF orientation says? Boxes are turned so that they lie on the
  // picture: those of a list whose size is that of the stored picture, or of the turned one. Where
  // both have this size, boxes are about the picture that is used.
  Exif exif = Exif::ignore;
  // Leaves out pictures that cannot be used, and says how many they are. In training, the next
  // picture that can be used stands for a share of which nothing is left.
  bool skip_bad = false;
  int threads = 0;   // threads that decode batches in advance; 0: next() does it, with parallel_for
  int prefetch = 1;  // with threads: batches that are made in advance
};

// Batches: input [N, H, W, C] f32, (value - mean) / std, 0 beside a picture; target [N] i64: the
// places of the pictures in the set. Extras:
//   boxes [T, 4] f32 and labels [T] i64: the objects, picture after picture, in pixels of the input
//   counts [N] i64: how many of them a picture has
//   sizes [N, 2] i64: height and width of a picture in the input, without its padding
//   originals [N, 2] i64: height and width of its file, turned where the options say so
// and where the options are not for training:
//   padded [N, 2] i64: height and width that the input would have for the picture alone
//   areas [T] f32: of the objects, in pixels of the file
//   crowd_boxes [C, 4] f32, crowd_labels [C] i64, crowd_counts [N] i64: the objects that do not
//   count, and crowd_difficult [C] i64: 1 for those that are difficult, 0 for crowds
// A picture without a path is painted: noise, and its objects as rectangles in colours of their
// classes.
// A share (set_share) has the height and width of the whole batch, since padding reaches the
// outputs of convolutions near it. Sizes of the other pictures of the batch are taken from the
// list, or from the files where the list has none. So the padding may differ from that of one
// process where the list has the size of a turned picture, or where skip_bad leaves out a picture
// of another share. Which pictures a share has is decided before they are read. Batches do not
// depend on the threads. The consumer's thread allocates them, so memory peaks do not depend on
// timing either. Thread safety: one consumer.
class BoxBatches : public BatchSource {
 public:
  // Errors: no pictures; options outside their ranges; drop_last that leaves no batch.
  BoxBatches(BoxSet set, const BoxBatchOptions& options);
  ~BoxBatches() override;  // also in the middle of an epoch
  BoxBatches(const BoxBatches&) = delete;
  BoxBatches& operator=(const BoxBatches&) = delete;
  // Errors, unless skip_bad: a file that cannot be decoded; one of another size than the list says,
  // also when it is turned; a box outside. With skip_bad: no picture of the set can be read.
  std::optional<Batch> next() override;
  int64_t batches() const override { return batches_; }
  int64_t samples() const override { return samples_; }
  LoaderState state() const override { return state_; }
  void seek(const LoaderState& state) override;
  void set_share(const Share& share) override;
  // The smallest batch of the list. Pictures that skip_bad leaves out count as well.
  int64_t smallest_batch() const override { return smallest_of(samples_, options_.batch_size); }
  const BoxSet& set() const { return set_; }

 private:
  struct Loaded;
  struct Job;
  Loaded load(int64_t index, RngKey key) const;
  void begin_epoch();
  Job begin(int64_t number) const;
  void make(Job& job, int64_t begin, int64_t end) const;
  void find_other_sizes(Job& job) const;
  // Leaves out what cannot be read. Where that leaves nothing to train on, another picture comes.
  void skip_faults(Job& job);
  void take_another(Job& job) const;
  Tensor input_of(Job& job) const;

  BoxSet set_;
  BoxBatchOptions options_;
  int64_t batches_ = 0, samples_ = 0, skipped_ = 0;
  LoaderState state_;
  Share share_;
  bool epoch_ready_ = false;  // order_ is that of state_.epoch
  bool found_ = false;        // some batch of this epoch has a picture
  std::vector<int64_t> order_;
  std::unique_ptr<MadeAhead<Job>> ahead_;  // the last member, whose threads use the others
};

// `pictures` painted pictures of this size, each with one to four objects of classes 1 to
// classes - 1.  Errors: a side below 16, fewer than 2 classes.
BoxSet random_boxes(int64_t height, int64_t width, int64_t classes, int64_t pictures, RngKey key);

}  // namespace frugal::data
