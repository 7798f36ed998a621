#!/usr/bin/env bash
# PyTorch 1.13 and 2.6: load_state_dict() of an optimizer casts every tensor of its state to the dtype of the parameter
# it belongs to, but the one called "step". An optimizer that keeps more digits than its parameters, or codes, is
# another one after a restart, without a word. It has to write its own load_state_dict().
# Seen, a parameter of bf16 with three tensors of state: master weights of f32 with the value 1.001 come back as bf16
# with 1, codes of uint8 as bf16, and a counter of int64 with 2^24 + 1 as bf16 with 2^24. With a parameter of f32, codes
# of uint8 come back as f32: four times the memory.
# Frugal: a checkpoint holds the state in its own dtypes; tests/optim/adam8bit_test.cpp, "8-bit AdamW: the same bits for
# every thread count, and after a restart"; tests/train/run/resume_test.cpp, "runs that are cut go on to the same bits,
# also where batches change in shape".
. "$(dirname "$0")/packages.sh"
both_torches
for suite in bookworm trixie; do
  python_in "$suite" -c '
import torch

class Own(torch.optim.Optimizer):
    def __init__(self, weights):
        super().__init__(weights, {})

    def step(self):
        for weight in self.param_groups[0]["params"]:
            self.state[weight] = {
                "step": torch.tensor(7.0),
                "master": torch.full((4,), 1.001),
                "codes": torch.full((4,), 200, dtype=torch.uint8),
                "counter": torch.full((4,), 2**24 + 1),
            }

for dtype in torch.bfloat16, torch.float32:
    weight = torch.zeros(4, dtype=dtype, requires_grad=True)
    first, second = Own([weight]), Own([weight])
    first.step()
    second.load_state_dict(first.state_dict())
    for name, value in second.state[weight].items():
        print("%s, %s: %s %.8g" % (str(dtype)[6:], name, str(value.dtype)[6:], value.reshape(-1)[0]))
' 2>/dev/null | sed "s/^/$suite: /" | tee "$work/out"
  for line in 'bfloat16, step: float32 7' 'bfloat16, master: bfloat16 1' 'bfloat16, codes: bfloat16 200' \
    'bfloat16, counter: bfloat16 16777216' 'float32, master: float32 1.001' 'float32, codes: float32 200'; do
    expect "$suite: $line" grep -qxF "$suite: $line" "$work/out"
  done
done
done_with_it
