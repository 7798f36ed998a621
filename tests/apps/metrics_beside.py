"""Compares the numbers of `frugal eval` with those of other programs for what `frugal predict` says of
the same samples: sklearn (python3-sklearn) for classes, labels, values and pixels, PyTorch
(python3-torch) for losses, COCO's own program (pycocotools) for boxes. A program that is not
installed is left out, which is printed. Without all of them the test is skipped (status 77).
usage: metrics_beside.py FRUGAL"""
import csv
import importlib
import json
import pathlib
import subprocess
import sys
import tempfile

FRUGAL = sys.argv[1]
failed = []


def optional(name, package):
    try:
        return importlib.import_module(name)
    except ImportError as error:
        print(f"left out: {package} ({error})")
        return None


numpy = optional("numpy", "python3-numpy")
sklearn = optional("sklearn.metrics", "python3-sklearn")
torch = optional("torch", "python3-torch")
coco = optional("pycocotools.coco", "pycocotools")
cocoeval = optional("pycocotools.cocoeval", "pycocotools")
Image = optional("PIL.Image", "python3-pil")


def run(*arguments):
    done = subprocess.run([FRUGAL, *map(str, arguments)], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"frugal {' '.join(map(str, arguments))}: status {done.returncode}\n{done.stderr}")
    return done.stdout


def lines(text):
    return [json.loads(line) for line in text.splitlines()]


# f32 outputs of some hundred samples: rounding is far below this.
def compare(what, ours, theirs, tolerance=1e-4):
    near = abs(ours - theirs) <= tolerance
    print(f"{'equal' if near else 'DIFFERENT'}: {what}: {ours:.6f}, reference {theirs:.6f}")
    if not near:
        failed.append(what)


def train(folder, config):
    path = folder / "c.json"
    config = {"schedule": {"name": "constant"}, "threads": 1, **config}
    path.write_text(json.dumps(config))
    run("train", path, "--quiet", "--out", folder / "run")
    return json.loads(run("eval", folder / "run", "--json"))


def predict(folder, *arguments):
    """With the weights that `frugal eval` takes."""
    return lines(run("predict", folder / "run", *arguments, "--json", "--weights", "last"))


def table(folder, target):
    rows = {}
    generator = numpy.random.default_rng(7)
    for part, count in (("train", 120), ("test", 70)):
        x = generator.normal(size=(count, 4))
        rows[part] = (x, target(x, generator))
        with open(folder / f"{part}.csv", "w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["a", "b", "c", "d", "target"])
            for values, answer in zip(x, rows[part][1]):
                writer.writerow([*values, answer])
    return rows["test"][1]


def rows_of(folder, top):
    return predict(folder, folder / "test.csv", "--top", top)


MLP = {"model": {"name": "mlp", "hidden": [8]}, "optim": {"name": "adam", "lr": 0.01}}


def classes(folder):
    wanted = table(folder, lambda x, g: ["low" if v < -0.4 else "high" if v > 0.4 else "mid"
                                         for v in x[:, 0] + g.normal(scale=0.5, size=len(x))])
    ours = train(folder, {**MLP, "data": {"name": "csv", "dir": str(folder), "batch_size": 20},
                          "train": {"epochs": 3}})
    names = json.loads((folder / "run" / "classes.json").read_text())
    shares = [[{g["name"]: g["probability"] for g in row["top"]}[name] for name in names]
              for row in rows_of(folder, 3)]
    best = [names[max(range(3), key=row.__getitem__)] for row in shares]
    compare("samples of classes", ours["samples"], len(wanted), 0)
    if sklearn:
        compare("accuracy", ours["accuracy"], sklearn.accuracy_score(wanted, best))
        compare("cross-entropy", ours["loss"], sklearn.log_loss(wanted, shares, labels=names))
    if torch:
        logs = torch.tensor(shares, dtype=torch.float64).log()
        loss = torch.nn.functional.nll_loss(logs, torch.tensor([names.index(n) for n in wanted]))
        compare("cross-entropy by PyTorch", ours["loss"], loss.item())


def values(folder):
    wanted = table(folder, lambda x, g: 3 * x[:, 1] - x[:, 2] + 40
                   + g.normal(scale=0.5, size=len(x)))
    ours = train(folder, {**MLP, "data": {"name": "csv", "dir": str(folder), "batch_size": 20},
                          "train": {"epochs": 6}})
    found = [row["values"][0] for row in rows_of(folder, 1)]
    compare("samples of values", ours["samples"], len(wanted), 0)
    if "accuracy" in ours:
        failed.append("numbers have no accuracy")
    if sklearn:
        compare("r2", ours["r2"], sklearn.r2_score(wanted, found))


def pictures(folder, channels=3):
    """20 pictures of 40 x 48 with a square in one of two colours."""
    generator = numpy.random.default_rng(3)
    for number in range(20):
        pixels = generator.integers(0, 90, size=(40, 48, channels), dtype=numpy.uint8)
        top, left, side = (int(v) for v in generator.integers(2, 18, size=3))
        side = max(side, 8)
        kind = number % 2
        pixels[top:top + side, left:left + side, 2 * kind] = 230
        yield number, pixels, (left, top, side), kind


def labels(folder):
    wanted = {}
    for part, numbers in (("train", range(0, 12)), ("test", range(12, 20))):
        with open(folder / f"{part}.csv", "w") as file:
            file.write("file,red,blue,large\n")
            for number, pixels, (left, top, side), kind in pictures(folder):
                if number not in numbers:
                    continue
                Image.fromarray(pixels).save(folder / f"{number}.png")
                answers = [int(kind == 0), int(kind == 1), int(side > 12)]
                file.write(f"{number}.png,{answers[0]},{answers[1]},{answers[2]}\n")
                wanted[number] = answers
    ours = train(folder, {
        "model": {"name": "resnet20"}, "optim": {"name": "sgd", "lr": 0.05},
        "data": {"name": "image_list", "several_labels": True, "dir": str(folder),
                 "image_size": 24, "batch_size": 4}, "train": {"epochs": 2}})
    found = predict(folder, *[folder / f"{n}.png" for n in range(12, 20)], "--top", 3)
    names = ["red", "blue", "large"]
    yes = [[int({g["name"]: g["probability"] for g in row["top"]}[name] > 0.5) for name in names]
           for row in found]
    compare("samples of several labels", ours["samples"], 8, 0)
    if sklearn:
        target = [wanted[number] for number in range(12, 20)]
        compare("micro_f1", ours["micro_f1"],
                sklearn.f1_score(target, yes, average="micro", zero_division=0))


def pixels_of(folder):
    wanted = {}
    for part in ("train", "test"):
        for name in ("images", "masks"):
            (folder / part / name).mkdir(parents=True)
    for number, pixels, (left, top, side), kind in pictures(folder):
        part = "train" if number < 14 else "test"
        mask = numpy.zeros((40, 48), dtype=numpy.uint8)
        mask[top:top + side, left:left + side] = 1 + kind
        Image.fromarray(pixels).save(folder / part / "images" / f"{number}.png")
        Image.fromarray(mask).save(folder / part / "masks" / f"{number}.png")
        if part == "test":
            wanted[number] = mask
    ours = train(folder, {
        "model": {"name": "unet", "width": 4}, "optim": {"name": "adam", "lr": 0.01},
        "data": {"name": "image_masks", "dir": str(folder), "image_size": 32, "batch_size": 4},
        "train": {"epochs": 3}})
    predict(folder, folder / "test" / "images", "--out", folder / "found")
    found = numpy.concatenate([numpy.asarray(Image.open(folder / "found" / f"{n}.png")).ravel()
                               for n in wanted])
    target = numpy.concatenate([mask.ravel() for mask in wanted.values()])
    if sklearn:
        compare("accuracy of pixels", ours["accuracy"], sklearn.accuracy_score(target, found))
        compare("miou", ours["miou"],
                sklearn.jaccard_score(target, found, average="macro", zero_division=0))


def boxes(folder):
    """The lists number the categories differently, with ids that are no outputs."""
    if not coco or not cocoeval:
        return
    for part, ids, numbers in (("train", [0, 50007], range(0, 12)), ("val", [9, 4], range(12, 20))):
        (folder / part).mkdir()
        document = {"images": [], "annotations": [],
                    "categories": [{"id": ids[0], "name": "red"}, {"id": ids[1], "name": "blue"}]}
        for number, pixels, (left, top, side), kind in pictures(folder):
            if number not in numbers:
                continue
            Image.fromarray(pixels).save(folder / part / f"{number}.png")
            document["images"].append({"id": 100 - number, "file_name": f"{number}.png",
                                       "height": 40, "width": 48})
            document["annotations"].append({
                "id": number + 1, "image_id": 100 - number, "category_id": ids[kind],
                "bbox": [left, top, side, side], "area": side * side,
                "iscrowd": int(number == 13)})
        (folder / "annotations").mkdir(exist_ok=True)
        (folder / "annotations" / f"instances_{part}.json").write_text(json.dumps(document))
    ours = train(folder, {
        "model": {"name": "retinanet_resnet50_fpn", "trunk": "resnet18", "width": 16,
                  "anchor_side": 8},
        "data": {"name": "image_boxes", "dir": str(folder), "sides": [48], "longest_side": 64,
                 "batch_size": 4}, "optim": {"name": "adam", "lr": 0.001},
        "compression": {"bits": 0}, "train": {"epochs": 15, "eval_interval": 15}})
    found = []
    for number in range(12, 20):
        row = predict(folder, folder / "val" / f"{number}.png")[0]
        for each in row["boxes"]:
            x1, y1, x2, y2 = each["box"]
            found.append({"image_id": 100 - number, "score": each["score"],
                          "category_id": {"red": 9, "blue": 4}[each["name"]],
                          "bbox": [x1, y1, x2 - x1, y2 - y1]})
    compare("samples with boxes", ours["samples"], 8, 0)
    truth = coco.COCO(str(folder / "annotations" / "instances_val.json"))
    judge = cocoeval.COCOeval(truth, truth.loadRes(found), "bbox")
    judge.evaluate()
    judge.accumulate()
    judge.summarize()
    names = ["ap", "ap50", "ap75", "ap_small", "ap_medium", "ap_large", "ar1", "ar10", "ar100",
             "ar_small", "ar_medium", "ar_large"]
    for name, value in zip(names, judge.stats):
        compare(name, ours["details"][name], float(value))


if numpy is None or not (sklearn or torch or coco):
    print("skipped: no program to compare with is installed")
    sys.exit(77)
for check in (classes, values, labels, pixels_of, boxes):
    if check in (labels, pixels_of, boxes) and Image is None:
        continue
    with tempfile.TemporaryDirectory() as name:
        check(pathlib.Path(name))
if failed:
    sys.exit(f"{len(failed)} numbers differ: {', '.join(failed)}")
