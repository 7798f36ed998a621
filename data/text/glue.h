// Tasks of the GLUE benchmark from its published files: SST-2, CoLA, MRPC, RTE, QNLI, MNLI.
// Ref: Wang et al. 2018.
#pragma once
#include <string>
#include <vector>

#include "data/text/sequence_batches.h"
#include "data/text/wordpiece.h"

namespace frugal::data {

struct GlueTask {
  std::string name;
  bool pair = false;                // two sentences
  std::vector<std::string> labels;  // names of classes 0, 1, ...
  std::string metric;               // beside accuracy: "", "f1" or "matthews"
};

std::vector<std::string> glue_tasks();
const GlueTask& glue_task(const std::string& name);  // Errors: unknown, listing those known

enum class GlueSplit { train, dev, dev_mismatched };  // the last: MNLI only

struct GlueExample {
  std::string first, second;  // second is empty in tasks of one sentence
  int64_t label = 0;
};

// `folder` holds the task's files (train.tsv, dev.tsv; MNLI: dev_matched.tsv and
// dev_mismatched.tsv), or has a folder NAME or glue/NAME that does. Quotes are text in all of them.
// MRPC is also read as published, msr_paraphrase_train.txt with GLUE's dev_ids.tsv, and is where
// both are there. Errors (with file and line): those of TsvReader; a label that is none; no files;
// dev_mismatched of another task; dev_ids that name other pairs.
std::vector<GlueExample> read_glue(const std::string& folder, const std::string& name,
                                   GlueSplit split);

// [CLS] first [SEP], or with second [SEP], of at most max_length tokens; the longer sentence is
// cut.
std::vector<Sequence> encode_glue(const std::vector<GlueExample>& examples, const GlueTask& task,
                                  const WordPiece& tokenizer, int64_t max_length);

}  // namespace frugal::data
