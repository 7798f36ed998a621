"""Prints the fingerprints of torchvision's state dicts that the tests of VGG, DenseNet, ViT, Swin
and the networks for segmentation and detection expect: FNV-1a over the sorted lines "name [shape]".
Needs python3-torchvision; made with 0.14.1."""
import torchvision.models
import torchvision.models.detection


def fnv1a(text):
    value = 0xCBF29CE484222325
    for byte in text.encode():
        value = ((value ^ byte) * 0x100000001B3) % 2**64
    return value


def show(label, model):
    state = model.state_dict()
    lines = sorted(f"{key} [{', '.join(map(str, value.shape))}]\n" for key, value in state.items())
    parameters = sum(p.numel() for p in model.parameters())
    print(f'{{"{label}", {parameters}, {len(lines)}, 0x{fnv1a("".join(lines)):016x}}},', flush=True)


for name in ["fcn_resnet50", "fcn_resnet101", "deeplabv3_resnet50", "deeplabv3_resnet101"]:
    make = getattr(torchvision.models.segmentation, name)
    for auxiliary in [False, True]:
        show(name + (" with aux_classifier" if auxiliary else ""),
             make(weights_backbone=None, num_classes=21, aux_loss=auxiliary))
for name in ["vgg11", "vgg11_bn", "vgg16", "vgg16_bn", "densenet121", "densenet161", "densenet201",
             "vit_b_16", "vit_b_32", "vit_l_16", "swin_t", "swin_s"]:
    show(name, getattr(torchvision.models, name)())
for name in ["retinanet_resnet50_fpn", "fasterrcnn_resnet50_fpn"]:
    show(name, getattr(torchvision.models.detection, name)(weights=None, weights_backbone=None))
