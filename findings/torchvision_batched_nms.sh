#!/usr/bin/env bash
# torchvision 0.14 and 0.21: which boxes batched_nms() keeps depends on the number of their class and on how many boxes
# there are. Up to 1,000 boxes (on the CPU), it moves each class apart by the largest coordinate, in the dtype of the
# boxes, and judges all together: digits of small boxes are gone, and pairs near the threshold change. With more boxes
# it judges each class alone.
# Seen, 500 boxes of 6 to 12 pixels in a picture of 1,333, three classes, 50 pictures: with the classes 77 to 79 other
# boxes are kept than by nms() of each class alone in 1 picture, with 1,200 to 1,202 (LVIS has 1,203 classes) in 14, and
# with 19,997 to 19,999 in all 50. In none with the classes 0 to 2, or with 600 boxes more at another place.
# Frugal: pairs of other groups are left out, and boxes stay where they are (ops/detection/nms.cpp);
# tests/ops/detection/detection_test.cpp, "nms: a group is judged as if it were alone, whatever its number".
. "$(dirname "$0")/packages.sh"
packages bookworm 'python3-torchvision=0.14.1*' 'python3-torch=1.13.1*'
packages trixie 'python3-torchvision=0.21.0*' 'python3-torch=2.6.0*'
for suite in bookworm trixie; do
  python_in "$suite" -W ignore -c '
import torch
from torchvision.ops import batched_nms, nms

def boxes_of(picture):
    generator = torch.Generator().manual_seed(picture)
    draw = lambda *shape: torch.rand(*shape, generator=generator)
    corner = draw(100, 2) * 1300
    boxes = torch.cat([corner, corner + 6 + 4 * draw(100, 2)], 1).repeat(5, 1) + 2 * draw(500, 4)
    return boxes, draw(500), (3 * draw(500)).long()

def alone(boxes, scores, classes):
    rows = [torch.where(classes == c)[0] for c in classes.unique()]
    return sorted(int(i) for at in rows for i in at[nms(boxes[at], scores[at], 0.5)])

far = torch.tensor([[0.0, 0.0, 1.0, 1.0]]).repeat(600, 1)
for first in 0, 77, 1200, 19997:
    differ = [0, 0]
    for picture in range(50):
        boxes, scores, classes = boxes_of(picture)
        wanted = alone(boxes, scores, classes)
        classes = classes + first
        differ[0] += sorted(batched_nms(boxes, scores, classes, 0.5).tolist()) != wanted
        more = [boxes, far], [scores, torch.zeros(600)], [classes, torch.zeros(600).long()]
        kept = batched_nms(*map(torch.cat, more), 0.5).tolist()
        differ[1] += sorted(i for i in kept if i < 500) != wanted
    print("classes from %d: %d pictures differ, with more boxes %d" % (first, *differ))
' 2>/dev/null | sed "s/^/$suite: /" | tee "$work/out"
  differ() { sed -n "s/^$suite: classes from $1: \([0-9]*\) pictures.*/\1/p" "$work/out"; }
  expect "$suite: the first classes are judged alone" [ "$(differ 0)" = 0 ]
  expect "$suite: a class number of 1,200 changes some pictures" [ "$(differ 1200)" -ge 5 ]
  expect "$suite: one of 20,000 changes all" [ "$(differ 19997)" = 50 ]
  expect "$suite: more boxes, and none is changed" [ "$(grep -c 'more boxes 0$' "$work/out")" = 4 ]
done
done_with_it
