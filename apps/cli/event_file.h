// EventFile: what a run measures, as TensorBoard reads it.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace frugal::apps {

// Whether this build has the libraries that write event files.
bool can_write_events();

// Values by name. A name like "loss/train" is a chart "train" in the group "loss".
using Scalars = std::vector<std::pair<std::string, double>>;

// A file events.out.tfevents.SECONDS.HOST.PROCESS.v2 in a folder: records of TensorFlow's TFRecord
// format, each an Event message. A run that goes on opens a new file in the same folder. If it is
// not the first one, it begins with a message that makes TensorBoard forget what older files say of
// later steps. A killed process may leave the last record cut; TensorBoard ignores it. Thread
// safety: none.
class EventFile {
 public:
  // Makes the folder and the file, whose name sorts behind those of the files that are there.
  // `step`: the step of the checkpoint that the run goes on from, or 0.
  // Errors: a build without the libraries; a folder or a file that cannot be made; a link in the
  // folder of a run.
  EventFile(const std::string& folder, int64_t step);
  ~EventFile();
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;

  const std::string& path() const { return path_; }
  // One record, at the time of the call. Values that are not finite are kept. Errors: full disk.
  void add(int64_t step, const Scalars& scalars);

 private:
  void append(const std::string& event);
  std::string path_;
  int file_ = -1;
};

}  // namespace frugal::apps
