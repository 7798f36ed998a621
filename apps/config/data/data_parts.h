// Own data in files: which of them are to train, to validate and to test on.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "apps/config/data/make_data.h"
#include "data/split.h"

namespace frugal::apps {

// Paths; empty: there is none.
struct DataParts {
  std::string train, validation, test;
  bool one_file() const { return validation.empty() && test.empty(); }
  // With one part beside the training's, that one is tested on; with none, the file is split.
  const std::string& of(Split split) const;
};

// data.dir is a file, or a folder with train.ENDING, and perhaps val.ENDING (or valid, validation)
// and test.ENDING; or a folder with one such file. Errors: ConfigError that names data.dir.
DataParts find_parts(const Config& config, const std::vector<std::string>& endings);

// The samples of a file that is split by data.split and the seed.
const std::vector<int64_t>& part_of(const data::SplitIndices& split, Split part);
// With what a run knows of its data, they are the samples of the run's parts, whatever the labels
// are now. name: gives the name of a sample that has one, below data.dir.
data::SplitIndices split_by(const Config& config, const std::vector<int64_t>& labels,
                            const std::function<std::string(int64_t)>& name = {});

// What a message about a path that is not there ends with: from where a relative path counts. A
// run keeps such a path, and may be used in another folder.
std::string counted_from(const std::string& path);

// The path of a file of the data, below data.dir.
std::string name_of_file(const Config& config, const std::string& path);

}  // namespace frugal::apps
