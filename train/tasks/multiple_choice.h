// MultipleChoice: which of several texts a language model takes for the likeliest.
#pragma once
#include <vector>

#include "data/text/chat/choice_questions.h"
#include "train/tasks/make_task.h"

namespace frugal::train {

// For evaluations. Samples are the choices of data::ChoiceQuestions, in batches of targets [N, T]
// i64 with kIgnored where none counts, and with their indices. An output is the sum of the
// log-probabilities of a sample's targets, [N]; the loss is its mean with another sign. Only the
// rows of targets that count get logits, one sample's at a time, in parts as those of
// LanguageModel. Metrics: the share of questions whose right choice has the highest output, the
// first of equals; and as the detail `accuracy_by_bytes` the same of outputs over the bytes of the
// choice. Saves: nothing. REQUIRES: a HeadedModule; no gradient is wanted.
class MultipleChoice : public Task {
 public:
  MultipleChoice(BatchSpec spec, std::vector<data::ChoiceQuestion> questions,
                 std::vector<int64_t> bytes, int64_t part_bytes = kLogitBytes)
      : Task(std::move(spec)),
        questions_(std::move(questions)),
        bytes_(std::move(bytes)),
        part_bytes_(part_bytes) {}
  ForwardPass loss(Module& model, Batch& batch, Context& context,
                   const LossOptions& options) const override;
  std::unique_ptr<Metric> metric() const override;

 private:
  std::vector<data::ChoiceQuestion> questions_;
  std::vector<int64_t> bytes_;
  int64_t part_bytes_;
};

}  // namespace frugal::train
