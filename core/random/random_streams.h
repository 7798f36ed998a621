// The random streams of a run: one table that has or names everything that draws from the run's
// seed. A stream owns a range of offsets of RngKey, so no two streams draw the same words. The
// compiler checks that the ranges do not overlap. A new stream gets a new row here.
#pragma once
#include <algorithm>
#include <array>
#include <cstddef>

#include "core/rng.h"

namespace frugal {

struct RandomStream {
  const char* name;
  uint64_t first;  // offset of its first key
  uint64_t keys;   // how many keys it owns
  constexpr RngKey key(uint64_t seed, uint64_t n = 0) const { return {seed, first + n}; }
  Rng rng(uint64_t seed) const {  // hands out its keys in order
    Rng rng;
    rng.restore(key(seed));
    return rng;
  }
};

namespace streams {

// Streams whose words are drawn as they are.
inline constexpr RandomStream kInitialWeights{"initial weights", 0, uint64_t{1} << 48},
    kTrainImages{"random images, train", uint64_t{1} << 48, uint64_t{1} << 48},
    kTestImages{"random images, test", uint64_t{2} << 48, uint64_t{1} << 48},
    kImageClasses{"random images, patterns of classes", uint64_t{3} << 48, uint64_t{1} << 48},
    kGeneratedTokens{"generated tokens", uint64_t{1} << 58, 1},
    kGraphEdges{"random graph, edges", uint64_t{1} << 59, 1},
    kGraphFeatures{"random graph, features", (uint64_t{1} << 59) + 1, 1},
    kTrainSequences{"random sequences, train", uint64_t{1} << 60, uint64_t{1} << 48},
    kTestSequences{"random sequences, test", (uint64_t{1} << 60) + (uint64_t{1} << 48),
                   uint64_t{1} << 48},
    kTrackingDropout{"dropout of passes that measure convergence", uint64_t{1} << 61,
                     uint64_t{1} << 61},
    kDropout{"dropout", uint64_t{1} << 62, uint64_t{1} << 61};

// Streams whose first words are seeds of other streams: those of an epoch, a batch or a sample.
inline constexpr RandomStream kClusterOrder{"order of clusters", 0x636c757374657200, 1},
    kFanOut{"sampled neighbours", 0x66616e6f75740000, 1},
    kLoader{"order and augmentation of images", 0x6c6f616465720000, 1},
    kMaskedTokens{"masked tokens", 0x6d61736b65640000, 1},
    kMixedSamples{"mixed samples of a batch", 0x6d69786564000000, 1},
    kSeedNodeOrder{"order of the nodes whose neighbours are sampled", 0x6e65696768626f72, 1},
    kPictureSplit{"pictures to train, validate and test on", 0x7069637475726573, 1},
    kPartition{"partition of a graph", 0x706172746974696f, 1},
    kRankSeeds{"seeds of the ranks that train together", 0x72616e6b73000000, 1},
    kSaintEstimate{"subgraphs that estimate GraphSAINT's weights", 0x70726573616d706c, 1},
    kSaint{"GraphSAINT's subgraphs", 0x7361696e74000000, 1},
    kSequenceOrder{"order of sequences", 0x73657175656e0001, 1},
    kSequenceBatchOrder{"order of batches of sequences", 0x73657175656e0002, 1},
    kJoinedSequences{"sequences of one length that change their rows", 0x73657175656e0003, 1},
    kNodeSplit{"nodes to train, validate and test on", 0x73706c6974000000, 1},
    kTextWindows{"windows of a text", 0x77696e646f770000, 1};

inline constexpr std::array kAll = {
    kInitialWeights,  kTrainImages,     kTestImages,    kImageClasses,
    kGeneratedTokens, kGraphEdges,      kGraphFeatures, kTrainSequences,
    kTestSequences,   kTrackingDropout, kDropout,       kClusterOrder,
    kFanOut,          kLoader,          kMaskedTokens,  kMixedSamples,
    kSeedNodeOrder,   kPartition,       kPictureSplit,  kRankSeeds,
    kSaintEstimate,   kSaint,           kSequenceOrder, kSequenceBatchOrder,
    kJoinedSequences, kNodeSplit,       kTextWindows};

// Streams of stochastic rounding need no offsets, because hashes seed them: for saved tensors a
// hash of (seed, step, tensor), see compress/quantize/quantize.h; for the state of 8-bit AdamW a
// hash of the parameter's name. Steps that do not train have a range of step numbers of their own.
inline constexpr RandomStream kTrainingSteps{"steps of training", 0, uint64_t{1} << 62},
    kTrackingSteps{"passes that measure convergence", uint64_t{1} << 62, uint64_t{1} << 62};
// Seeds for further roundings of the same tensor in the same step. other_rounding: a second,
// independent draw. repeated_rounding: a draw that replaces a first one after the widths have
// changed. rounding_of_part: part i of a tensor whose parts have their own widths.
constexpr uint64_t other_rounding(uint64_t seed) { return seed ^ 0x9e3779b97f4a7c15; }
constexpr uint64_t repeated_rounding(uint64_t seed) { return seed ^ 0xd1b54a32d192ed03; }
constexpr uint64_t rounding_of_part(uint64_t seed, uint64_t i) {
  return seed + 0x9e3779b97f4a7c15 * (i + 1);
}
// Seed for the rounding of gradients on their way between ranks.
constexpr uint64_t rounding_of_gradients(uint64_t seed) { return seed ^ 0xa0761d6478bd642f; }

template <size_t n>
constexpr bool lie_apart(const std::array<RandomStream, n>& streams) {
  for (size_t i = 0; i < n; ++i)
    for (size_t j = 0; j < i; ++j) {
      const RandomStream &a = streams[i], &b = streams[j];
      if (a.first < b.first ? b.first - a.first < a.keys : a.first - b.first < b.keys) return false;
    }
  return true;
}
static_assert(lie_apart(kAll));
static_assert(lie_apart(std::array{kTrainingSteps, kTrackingSteps}));

}  // namespace streams
}  // namespace frugal
