// Tasks of the GLUE benchmark from its published files: SST-2, CoLA, MRPC, RTE, QNLI, MNLI.
// Ref: Wang et al. 2018.
#pragma once
#include <string>
#include <vector>

#include "data/text/sequence_batches.h"
#include "data/text/tokenizer.h"

namespace frugal::data {

struct GlueTask {
  std::string name;
  bool pair = false;                // two sentences
  std::vector<std::string> labels;  // names of classes 0, 1, ...
  std::string metric;               // the metric beside accuracy: "", "f1" or "matthews"
};

std::vector<std::string> glue_tasks();
const GlueTask& glue_task(const std::string& name);  // Errors: another name, with a list of all

enum class GlueSplit { train, dev, dev_mismatched };  // dev_mismatched: only MNLI has it

struct GlueExample {
  std::string first, second;  // second is empty in tasks of one sentence
  int64_t label = 0;
};

// Reads train.tsv or dev.tsv (MNLI: dev_matched.tsv or dev_mismatched.tsv) in `folder` or in its
// folder NAME or glue/NAME. In these files quotes are text. For MRPC, the published files
// msr_paraphrase_train.txt and GLUE's dev_ids.tsv are read instead if both are there.
// Errors (with file and line): those of TableReader; texts that are not UTF-8; an unknown label;
// missing files; dev_mismatched of another task than MNLI; pairs in dev_ids.tsv that are not in
// MRPC.
std::vector<GlueExample> read_glue(const std::string& folder, const std::string& name,
                                   GlueSplit split);

// The sequences [CLS] first [SEP] or [CLS] first [SEP] second [SEP], or what else the tokenizer's
// encoder_layout() says, of at most max_length tokens. If there are more, the longer sentence is
// cut. REQUIRES: an encoder_layout().
std::vector<Sequence> encode_glue(const std::vector<GlueExample>& examples, const GlueTask& task,
                                  const Tokenizer& tokenizer, int64_t max_length);

}  // namespace frugal::data
