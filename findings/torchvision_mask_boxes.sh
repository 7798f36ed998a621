#!/usr/bin/env bash
# torchvision 0.21: masks_to_boxes(), which makes the boxes of a detection network out of masks, ends a box at the
# last pixel of the object. All else of torchvision takes the end of a box as the edge behind that pixel: box_iou(),
# the transforms, and the networks. So each object is learned a pixel too narrow and too low, small ones most of all,
# and a box that is mirrored or enlarged with its picture lies elsewhere than its mask. An object of one row or column
# of pixels gets a box without area: SanitizeBoundingBoxes() drops it, and the networks raise an error. The manual
# warns of the last kind as degenerate and does not say where boxes end. Adding 1 to x2 and y2 makes all of them
# right.
# Seen, squares of 1, 2, 4, 8 and 32 pixels: the box overlaps that of the square by an IoU of 0, 0.25, 0.56, 0.77 and
# 0.94, and by 1 after adding. A square from 8 to 23 in a picture of 64 has the box 8 to 23; mirrored, box and mask,
# it has the box 41 to 56 and the mask's 40 to 55; enlarged twice, 16 to 46 and 16 to 47. Of a square, a row and a
# column, SanitizeBoundingBoxes() keeps the square, and all three after adding.
# Frugal: boxes end behind their last pixel, those of VOC's files get it when they are read, and a warning counts
# boxes without area; tests/data/detection/box_set_test.cpp, "VOC: pictures, boxes and classes of a part" and "VOC:
# boxes up to a pixel outside end at the edge, and those without area are left out". docs/guide/detection.md says it
# to those who make boxes of masks.
. "$(dirname "$0")/packages.sh"
packages trixie 'python3-torchvision=0.21.0*'
python_in trixie -W ignore -c '
import torch
from torchvision import tv_tensors
from torchvision.ops import box_iou, masks_to_boxes
from torchvision.transforms import v2

more = torch.tensor([0, 0, 1, 1])
text = lambda box: " ".join("%g" % value for value in box.flatten())
for size in 1, 2, 4, 8, 32:
    mask = torch.zeros(1, 64, 64, dtype=torch.bool)
    mask[:, 8 : 8 + size, 8 : 8 + size] = True
    box, right = masks_to_boxes(mask), torch.tensor([[8.0, 8, 8 + size, 8 + size]])
    print("%d pixels: IoU %.2f, with 1 more %.2f" % (size, box_iou(box, right), box_iou(box + more, right)))
masks = torch.zeros(3, 64, 64, dtype=torch.bool)
masks[0, 8:24, 8:24] = True
masks[1, 30, 5:40] = True
masks[2, 50:60, 50] = True
boxes = masks_to_boxes(masks)
print("boxes:", "; ".join(text(box) for box in boxes))

def both(what, change):
    mask = tv_tensors.Mask(masks[:1])
    lie = []
    for add in 0, more:
        box = tv_tensors.BoundingBoxes(boxes[:1] + add, format="XYXY", canvas_size=(64, 64))
        lie.append("%s and %s" % (text(change(box)), text(masks_to_boxes(change(mask)) + add)))
    print(what + ":", ", with 1 more ".join(lie))

both("mirrored", v2.functional.horizontal_flip)
both("enlarged", lambda x: v2.functional.resize(x, [128, 128], interpolation=v2.InterpolationMode.NEAREST))
for add in 0, more:
    sample = {"boxes": tv_tensors.BoundingBoxes(boxes + add, format="XYXY", canvas_size=(64, 64)),
              "labels": torch.arange(3)}
    kept = v2.SanitizeBoundingBoxes()(sample)["labels"]
    print("kept%s:" % (" with 1 more" if add is more else ""), *kept.tolist())
' | tee "$work/out"
while read -r line; do expect "$line" grep -qxF "$line" "$work/out"; done <<'END_OF_LINES'
1 pixels: IoU 0.00, with 1 more 1.00
2 pixels: IoU 0.25, with 1 more 1.00
4 pixels: IoU 0.56, with 1 more 1.00
8 pixels: IoU 0.77, with 1 more 1.00
32 pixels: IoU 0.94, with 1 more 1.00
boxes: 8 8 23 23; 5 30 39 30; 50 50 50 59
mirrored: 41 8 56 23 and 40 8 55 23, with 1 more 40 8 56 24 and 40 8 56 24
enlarged: 16 16 46 46 and 16 16 47 47, with 1 more 16 16 48 48 and 16 16 48 48
kept: 0
kept with 1 more: 0 1 2
END_OF_LINES
done_with_it
