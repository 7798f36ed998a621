// Names of options that several networks share: what each may be, and a sentence of help. An option
// that one network has is beside its struct.
#pragma once
#include "models/option.h"

namespace frugal::models::keys {

inline constexpr int64_t kMostUnits = 1 << 20;

// ---- what the data say
inline constexpr Key kNumClasses{"num_classes", range::integer(1, 1 << 24), "Outputs.", Key::data};
inline constexpr Key kClassesOrFeatures{"num_classes", range::integer(0, 1 << 24),
                                        "Outputs; 0: the network gives features.", Key::data};
inline constexpr Key kInChannels{"in_channels", range::integer(1, kMostUnits), "Input channels.",
                                 Key::data};
inline constexpr Key kInFeatures{"in_features", range::integer(0, int64_t{1} << 40),
                                 "Numbers of a sample or of a node.", Key::data};
inline constexpr Key kVocabSize{"vocab_size", range::integer(1, 1 << 24), "Token ids are below.",
                                Key::data};

// ---- networks of many kinds
inline constexpr Key kDropout{
    "dropout", range::below(0, 1),
    "Probability of dropping a hidden unit, where the network drops any; null: the network's own.",
    Key::own};
inline constexpr Key kAttentionDropout{
    "attention_dropout", range::below(0, 1),
    "Transformers and gat: dropout of attention's weights; null: the network's own.", Key::own};
inline constexpr Key kStochasticDepth{
    "stochastic_depth", range::below(0, 1),
    "ViT and Swin: probability that the last block leaves out a branch for a sample; "
    "it grows linearly from 0 at the first block. null: the network's own.",
    Key::own};
inline constexpr Key kLayers{
    "layers", range::integer(1, 4096),
    "ResNets, transformers and graph networks: instead of the named network's layers. "
    "resnet18 and larger: from their own number on, by whole blocks (of 3 layers, in "
    "resnet18 and resnet34 of 2), which the second and the third stage share in "
    "proportion to their own, as ActNN and GACT deepen ResNet-152; their depth D is "
    "152 + 3 (D - 152) layers. CIFAR ResNets: 6 n + 2.",
    Key::own};
inline constexpr Key kWidth{
    "width", range::integer(1, kMostUnits),
    "Transformers and graph networks: hidden units, which gat's heads share out, instead "
    "of the named network's. ResNets: inner channels of a block of the first stage, of "
    "which each later stage has twice as many: torchvision's width_per_group, which ActNN "
    "and GACT widen. Blocks of resnet50 and larger give as many channels as ever, those "
    "of the others as many as they have inside. Detection networks: channels of the pyramid, 256.",
    Key::own};
inline constexpr Key kHeads{"heads", range::integer(1, 4096),
                            "Transformers and gat: heads, instead of the named network's.",
                            Key::own};

// ---- transformers
inline constexpr Key kFeedForward{
    "feed_forward", range::integer(1, kMostUnits),
    "Transformers: units between the two layers of each block's second half; null: "
    "4 times the width; decoder: 8/3 of it, up to a multiple of 64.",
    Key::own};
inline constexpr Key kMaxPositions{"max_positions", range::integer(1, kMostUnits),
                                   "Transformers: the longest sequence; null: the network's own.",
                                   Key::own};
inline constexpr Key kTied{"tied", range::flag(),
                           "decoder, gpt2: the head's weight is the token embedding; null: as the "
                           "family has it, gpt2 true, llama false.",
                           Key::own};

// ---- graph networks
inline constexpr Key kInputDropout{
    "input_dropout", range::below(0, 1),
    "gcn, sage and gat: the same of the features; null: the network's own.", Key::own};

// ---- detection networks, and those that learn from views
inline constexpr Key kTrunk{
    "trunk", range::any_text(),
    "Detection networks: the ResNet below the pyramid. simsiam, byol, moco_v2: the network "
    "that learns to give features."};
inline constexpr Key kAnchorSide{
    "anchor_side", range::integer(1, 4096),
    "Detection networks: pixels of the smallest anchors' sides; each level of the "
    "pyramid has twice those of the one before."};
inline constexpr Key kBoxLoss{
    "box_loss", range::choice("l1, smooth_l1, giou"),
    "Detection networks: how a box is compared with its object: absolute or smoothed "
    "differences of their codes, or 1 - GIoU of the boxes; null: torchvision's, l1 of "
    "retinanet_resnet50_fpn and smooth_l1 of fasterrcnn_resnet50_fpn.",
    Key::own};

}  // namespace frugal::models::keys
