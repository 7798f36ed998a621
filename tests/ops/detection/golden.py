"""Prints what torchvision's functions give for a few boxes: golden.inc beside this file, or with
--anchors tests/models/detection/anchors.inc. Needs python3-torchvision; made with 0.14.1."""
import sys

import torch
from torchvision.models.detection._utils import BoxCoder, Matcher
from torchvision.models.detection.anchor_utils import AnchorGenerator
from torchvision.models.detection.image_list import ImageList
from torchvision.ops import batched_nms, box_iou, generalized_box_iou, nms, roi_align
from torchvision.ops import generalized_box_iou_loss, sigmoid_focal_loss

torch.manual_seed(7)


ANCHORS = "--anchors" in sys.argv


def put(name, values, kind="double"):
    if (name == "kAnchors") != ANCHORS:
        return
    flat = torch.as_tensor(values).flatten().tolist()
    text = ", ".join(repr(v) if kind == "int64_t" else repr(float(v)) for v in flat)
    print(f"const std::vector<{kind}> {name} = {{{text}}};")


def boxes(n, extent=40.0):
    corner = torch.rand(n, 2) * extent
    return torch.cat([corner, corner + 2 + torch.rand(n, 2) * extent], 1)


print("// Made by tests/ops/detection/golden.py.")
a, b = boxes(4), boxes(5)
put("kA", a), put("kB", b)
put("kIou", box_iou(a, b)), put("kGiou", generalized_box_iou(a, b))

coder = BoxCoder((10.0, 10.0, 5.0, 5.0))
put("kEncoded", coder.encode_single(b[:4], a))
codes = torch.randn(4, 8)
codes[0, 2] = 100.0  # held at log(1000 / 16)
put("kCodes", codes), put("kDecoded", coder.decode_single(codes, a).reshape(4, 8))

many = boxes(24, 30.0)
scores = torch.round(torch.rand(24) * 8) / 8  # with ties
groups = torch.randint(0, 2, (24,))
put("kMany", many), put("kScores", scores), put("kGroups", groups, "int64_t")
put("kNms", nms(many, scores, 0.4), "int64_t")
put("kBatchedNms", batched_nms(many, scores, groups, 0.4), "int64_t")

for low_quality in (False, True):
    matcher = Matcher(0.5, 0.3, allow_low_quality_matches=low_quality)
    put(f"kMatches{'LowQuality' if low_quality else ''}", matcher(box_iou(a, many)), "int64_t")

logits = (torch.randn(4, 3) * 2).requires_grad_()
target = torch.zeros(4, 3)
target[0, 2] = target[2, 0] = 1
loss = sigmoid_focal_loss(logits, target, reduction="sum")
loss.backward()
put("kLogits", logits.detach()), put("kFocal", loss.detach()), put("kFocalGradient", logits.grad)

x = (a + torch.randn(4, 4)).requires_grad_()
loss = torch.nn.functional.smooth_l1_loss(x, a, beta=1 / 9, reduction="sum")
loss.backward()
put("kMoved", x.detach()), put("kSmooth", loss.detach()), put("kSmoothGradient", x.grad)

x = torch.cat([a[:3] + torch.randn(3, 4), a[3:] + 500]).requires_grad_()
loss = generalized_box_iou_loss(x, a, reduction="sum")
loss.backward()
put("kGiouBoxes", x.detach()), put("kGiouLoss", loss.detach()), put("kGiouGradient", x.grad)

maps = torch.randn(2, 2, 5, 6)  # NCHW there, NHWC here
regions = torch.tensor([[0, 1.0, 2.0, 9.0, 8.0], [1, -3.0, -4.0, 30.0, 25.0],
                        [0, 4.2, 4.1, 4.3, 4.2], [1, 40.0, 1.0, 60.0, 9.0]])
put("kMaps", maps.permute(0, 2, 3, 1)), put("kRegions", regions)
for name, ratio, aligned in (("Two", 2, False), ("Adaptive", -1, True)):
    x = maps.clone().requires_grad_()
    y = roi_align(x, regions, (2, 3), 0.25, ratio, aligned)
    (y * torch.arange(y.numel()).reshape(y.shape).cos()).sum().backward()
    put(f"kAligned{name}", y.detach().permute(0, 2, 3, 1))
    put(f"kAlignedGradient{name}", x.grad.permute(0, 2, 3, 1))
put("kAlignedDy", torch.arange(4 * 2 * 2 * 3).reshape(4, 2, 2, 3).cos().permute(0, 2, 3, 1))

seen_from = a.repeat(2, 1)[:6]  # more rows than references
x = torch.randn(6, 4)
x[1, 2], x[3] = 40.0, x[3] * 0.01  # held at log(1000 / 16); close to the reference
x = x.requires_grad_()
which = [0, 3, 1, 3, 2, 2]
loss = generalized_box_iou_loss(coder.decode_single(x, seen_from), a[which], reduction="sum")
loss.backward()
put("kCodedBoxes", x.detach()), put("kCodedGiou", loss.detach())
put("kCodedGiouGradient", x.grad)

sizes = tuple((x, int(x * 2 ** (1.0 / 3)), int(x * 2 ** (2.0 / 3))) for x in (8, 16))
generator = AnchorGenerator(sizes, ((0.5, 1.0, 2.0),) * 2)
images = ImageList(torch.zeros(1, 3, 21, 33), [(21, 33)])
put("kAnchors", generator(images, [torch.zeros(1, 1, 2, 3), torch.zeros(1, 1, 1, 2)])[0])
