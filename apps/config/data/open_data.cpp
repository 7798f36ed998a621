#include "apps/config/data/open_data.h"

#include "apps/config/data/data_kinds.h"
#include "apps/config/make_model.h"

namespace frugal::apps {

std::unique_ptr<data::BatchSource> OpenData::training_samples(const Config&) {
  FRUGAL_ASSERT(false);  // only networks that learn from images are evaluated with them
  return nullptr;
}
std::vector<int64_t> OpenData::samples_ahead(const Config&, int64_t) { return {}; }
const std::vector<int64_t>& OpenData::row_lengths(const Config&, Split) {
  static const std::vector<int64_t> none;
  return none;
}
std::vector<std::string> OpenData::class_names(const Config&) { return {}; }
std::vector<int64_t> OpenData::category_ids(const Config&) { return {}; }
std::vector<int64_t> OpenData::mask_values(const Config&) { return {}; }
data::PictureList OpenData::labelled_pictures(const Config&, Split) { return {}; }
std::shared_ptr<const data::Tokenizer> OpenData::tokenizer(const Config&) { return nullptr; }
const data::CsvEncoding* OpenData::columns(const Config&) { return nullptr; }
void OpenData::describe(const Config&, RunEncoding&) {}

std::shared_ptr<OpenedData> nothing_opened() { return std::make_shared<OpenedData>(); }

OpenedData::Source OpenedData::source_of(const Config& config) {
  Source source{config.data, config.run.seed, is_decoder(config)};
  DataConfig& data = source.data;
  data.opened = nullptr;  // it must not own itself
  data.batch_size = data.workers = data.image_size = 0;
  data.test_batch_size.reset();
  data.drop_last = false;
  return source;
}

std::shared_ptr<OpenData> OpenedData::of(const Config& config) {
  Source source = source_of(config);
  if (source != source_) {
    data_ = kind_of(config).open();
    source_ = std::move(source);
  }
  return data_;
}

std::shared_ptr<OpenData> open_data(const Config& config) { return config.data.opened->of(config); }

}  // namespace frugal::apps
