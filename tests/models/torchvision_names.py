"""Prints the fingerprints that names_test.cpp expects: FNV-1a over the sorted lines
"name [shape]" of torchvision's state dicts. Needs python3-torchvision; made with 0.14.1."""
import torchvision.models


def fnv1a(text):
    value = 0xCBF29CE484222325
    for byte in text.encode():
        value = ((value ^ byte) * 0x100000001B3) % 2**64
    return value


for name in ["resnet18", "resnet34", "resnet50", "resnet101", "resnet152",
             "wide_resnet50_2", "wide_resnet101_2"]:
    state = getattr(torchvision.models, name)().state_dict()
    lines = sorted(f"{key} [{', '.join(map(str, value.shape))}]\n" for key, value in state.items())
    print(f'{{"{name}", {len(lines)}, 0x{fnv1a("".join(lines)):016x}}},')
