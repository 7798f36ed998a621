// Who reads a key of the configuration: what the table's rows are made with (config_table.cpp). All
// of it sees a configuration before resolve() has filled it.
#pragma once
#include <string>
#include <vector>

#include "apps/config/data/make_data.h"
#include "apps/config/keys/config_table.h"

namespace frugal::apps {

Reader every_run();
Reader networks(const char* key,
                const std::string& who);  // by the networks' own list, network_reads()
Reader with_data(BatchSpec::Kind kind);
Reader data_named(const std::vector<std::string>& names);
Reader sampled(const std::vector<std::string>& samplers);
// What data::Loader makes batches of.
Reader loaded();
// Samples that an epoch cuts into batches.
Reader cut_samples();
Reader with_pixels();
Reader optimizers(const std::vector<std::string>& names);
Reader on(const std::vector<std::string>& devices, const char* who);
std::vector<std::string> names_of(const std::vector<PolicyKind>& kinds);
Reader policies(const std::vector<PolicyKind>& kinds);
Reader packing();

// Data.
DataTraits traits(const Config& c);
bool is_glue(const Config& c);
bool makes_windows(const Config& c);  // batches are windows of one long text
bool has_samples(const Config& c);    // train_samples can count the samples

// Compression.
PolicyKind policy_of(const Config& c);  // memory_budget means budget
bool packs(const Config& c);
bool rebuilds(const Config& c);        // recipes rebuild some activations
bool may_rebuild(const Config& c);     // recipes would rebuild some, if they were on
bool measures(const Config& c);        // sensitivities are measured with a part of the batch
bool chooses_widths(const Config& c);  // each tensor gets its own width
bool checkpoints(const Config& c);
bool freezes(const Config& c);
bool packs_weights(const Config& c);
bool weighs_classes(const Config& c);
bool learns_from_views(const Config& c);  // two views of each picture, without labels

}  // namespace frugal::apps
