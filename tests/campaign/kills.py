#!/usr/bin/env python3
"""Kills trainings of all kinds at any moment, and looks whether they go on to the same bits.

usage: kills.py PROGRAM WATCHED_CALLS [--kills N] [--seed S] [--mpiexec PROGRAM] [--ranks N ...] [--work KIND ...]

Each run is a policy, a wrapper, a kind of work and a number of ranks, all drawn. One rank is killed
right before a call on a file or a call of operator new, which is drawn, too: so in the middle of a
step, a checkpoint, a start. Then the run goes on and is killed again, three times. At last it goes
on to its end, and is equal to a run that nothing happened to.
What a configuration cannot combine is drawn again. --work says which kinds of work are drawn; without it, all but
boxes, whose networks have checkpoints of 90 MB.

Exit status: 0, nothing was wrong; 1, something was; 2, a mistake on the command line.
"""
import argparse
import copy
import json
import os
import pathlib
import shutil
import subprocess
import sys

import campaign

POLICIES = {
    "raw": {"bits": 0},
    "fixed": {"bits": 4},
    "two and a half bits": {"bits": 2.5},
    "coded": {"bits": 2, "entropy": True},
    "adaptive": {"bits": 3, "gact": {"adaptive": True, "interval": 3}},
    "guarded": {"bits": 4, "guard": 0.05, "advanced": {"track_interval": 2}},
    "actnn": {"policy": "actnn", "level": "L3", "actnn": {"interval": 3}},
    "acgc": {"policy": "acgc", "acgc": {"interval": 3}},
    "acgc, predicted": {"policy": "acgc", "acgc": {"interval": 3, "codec": "predicted"}},
    "budget": {"memory_budget": "1/2 activations"},
}
WRAPPERS = {
    "none": {},
    "moved": {"compression": {"offload": "FOLDER"}},
    "in_backward": {"optim": {"in_backward": True}},
    "gradients kept": {"optim": {"in_backward": False}},
    "recomputed": {"train": {"checkpointing": True}},
    "accumulated": {"train": {"gradient_accumulation": 2}},
    "averaged": {"optim": {"ema": 0.9}},
    "clipped": {"optim": {"clip_norm": 0.5}},
    "eight bits": {"optim": {"name": "adamw_8bit", "lr": 0.002}},
    "adamw": {"optim": {"name": "adamw", "lr": 0.002}},
    "adafactor": {"optim": {"name": "adafactor", "lr": 0.01}},
    "lars": {"optim": {"name": "lars", "lr": 0.05}},
    "lion in eight bits": {"optim": {"name": "lion_8bit", "lr": 0.001}},
    "codes between ranks": {"distributed": {"compress_gradients": 4}},
    "frozen at first": {"train": {"freeze": ["*bias"], "freeze_epochs": 1}},
    "bf16": {"precision": "bf16"},
    "stops early": {"train": {"early_stop": {"patience": 2}}},
    "writes events": {"train": {"tensorboard": True}},
}
IMAGES = {"name": "random", "shape": [8, 8, 2], "classes": 3, "train_samples": 29, "test_samples": 8, "batch_size": 8}
VIEWS = {"data": {**IMAGES, "shape": [12, 12, 3], "train_samples": 20, "test_samples": 10}}
SMALL_TRUNK = {"trunk": "resnet20", "layers": 8, "width": 4, "projector": [16, 8], "neighbours": 5}
BOXES = {"data": {"name": "random_boxes", "shape": [32, 32, 3], "classes": 3, "batch_size": 4, "flip": True, "train_samples": 10,
                  "test_samples": 3, "test_batch_size": 2},
         "train": {"epochs": 1, "checkpoint_interval": 1}}
TOKENS = {"name": "random_tokens", "max_length": 12, "batch_size": 4}
TALKS = {"name": "conversations", "dir": str(pathlib.Path(__file__).resolve().parents[2] / "configs/lora_sft"), "max_length": 128,
         "batch_size": 4, "train_samples": 24, "test_samples": 4}
GRAPH = {"name": "random_graph", "nodes": 60, "edges": 200, "features": 8, "classes": 3}
WORK = {
    "two views": {"model": {"name": "simsiam", **SMALL_TRUNK, "predictor": 6}, **VIEWS},
    "two views, target": {"model": {"name": "byol", **SMALL_TRUNK, "predictor": 6}, **VIEWS},
    "two views, queue": {"model": {"name": "moco_v2", **SMALL_TRUNK, "queue": 12}, **VIEWS},
    "boxes": {"model": {"name": "retinanet_resnet50_fpn", "trunk": "resnet18", "width": 8, "anchor_side": 8}, **BOXES},
    "boxes, two stages": {"model": {"name": "fasterrcnn_resnet50_fpn", "trunk": "resnet18", "width": 8, "anchor_side": 8}, **BOXES},
    "pictures": {"model": {"name": "sequential", "modules": [
        {"conv2d": {"out_channels": 8, "kernel_size": 3, "padding": 1}}, "batch_norm", "relu",
        {"residual": [{"conv2d": {"out_channels": 8, "kernel_size": 3, "padding": 1}}, "batch_norm"]}, "relu",
        {"max_pool2d": 2}, {"dropout": 0.2}, "mean_pool", "linear"]},
        "data": {**IMAGES, "flip": True, "crop_padding": 1}},
    "mixed pictures": {"model": {"name": "resnet20", "width": 4, "layers": 8}, "data": {**IMAGES, "shape": [8, 8, 3], "mixup": 0.4}},
    "rows": {"model": {"name": "mlp", "hidden": [16, 8], "dropout": 0.2}, "data": {**IMAGES, "shape": [4, 4, 1]}},
    "texts": {"model": {"name": "bert_tiny", "layers": 1, "width": 16, "heads": 2, "vocab_size": 30},
              "data": {**TOKENS, "train_samples": 14, "test_samples": 4, "classes": 2}},
    "next tokens": {"model": {"name": "gpt2", "layers": 1, "width": 16, "heads": 2, "vocab_size": 30},
                    "data": {**TOKENS, "train_samples": 170}},
    "decoder": {"model": {"name": "decoder", "layers": 1, "width": 16, "heads": 2, "kv_heads": 1, "vocab_size": 30},
                "data": {**TOKENS, "train_samples": 170}},
    "adapters": {"model": {"name": "decoder", "layers": 1, "width": 16, "heads": 2, "vocab_size": 30},
                 "adapter": {"type": "lora", "rank": 2}, "data": {**TOKENS, "train_samples": 170}},
    "joined talks": {"model": {"name": "decoder", "layers": 1, "width": 16, "heads": 2, "frozen": "nf4"},
                     "adapter": {"type": "lora", "rank": 2, "dropout": 0.1}, "data": {**TALKS, "join": True}},
    "graph": {"model": {"name": "gcn", "layers": 2, "width": 8}, "data": GRAPH},
    "attention on a graph": {"model": {"name": "gat", "layers": 2, "width": 8, "heads": 2}, "data": GRAPH},
    "parts of a graph": {"model": {"name": "sage", "layers": 2, "width": 8},
                         "data": {**GRAPH, "sampler": "neighbours", "fan_outs": [3, 3], "batch_size": 10}},
    "pixels": {"model": {"name": "unet", "width": 4},
               "data": {"name": "random_masks", "shape": [32, 32, 3], "classes": 2, "train_samples": 10, "test_samples": 3, "batch_size": 4}},
}
WITH_LARGE_CHECKPOINTS = {"boxes", "boxes, two stages"}
SHARDING = ["none", "optimizer", "gradients"]


def merged(config, more):
    for key, value in more.items():
        if isinstance(value, dict) and isinstance(config.get(key), dict):
            merged(config[key], value)
        else:
            config[key] = copy.deepcopy(value)
    return config


class Kills(campaign.Campaign):
    def __init__(self, program, library, seed, mpiexec, ranks, work):
        super().__init__(program, library, 0, seed)
        self.mpiexec, self.ranks, self.work = mpiexec, ranks, work
        self.kills = self.runs = 0
        self.tried_kinds, self.refused = {}, {}
        self.wrapper = os.path.join(self.folder, "on_rank")
        with open(self.wrapper, "w") as file:  # usage: on_rank RANK VARIABLE=VALUE ... -- COMMAND
            file.write('#!/bin/bash\nmine=${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-0}}\nrank=$1; shift\nset_=()\n'
                       'while [ "$1" != -- ]; do set_+=("${1//RANK/$mine}"); shift; done; shift\n'
                       'if [ "$rank" = all ] || [ "$rank" = "$mine" ]; then exec env "${set_[@]}" "$@"; fi\nexec "$@"\n')
        os.chmod(self.wrapper, 0o755)

    def start_on(self, ranks, rank, watch, *words):
        """Starts the program on so many ranks; `watch` is for one of them, or for "all"."""
        if ranks == 1:
            return self.start(*words, **{name: value.replace("RANK", "0") for name, value in watch.items()})
        environment = dict(os.environ, OMP_NUM_THREADS="1", OMP_WAIT_POLICY="passive", FRUGAL_LOG="warn", HOME="/nonexistent",
                           TMPDIR=self.folder, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                           OMPI_MCA_rmaps_base_oversubscribe="1", OMPI_MCA_hwloc_base_binding_policy="none",
                           OMPI_MCA_plm_rsh_agent="/bin/false", OMPI_MCA_btl_vader_single_copy_mechanism="none",
                           OMPI_MCA_btl_vader_backing_directory="/tmp",
                           PRTE_MCA_rmaps_default_mapping_policy=":oversubscribe", PRTE_MCA_plm_ssh_agent="/bin/false")
        environment.pop("FRUGAL_DATA", None)
        variables = [f"FRUGAL_WATCH_{name.upper()}={value}" for name, value in watch.items()]
        if watch:
            variables.append(f"LD_PRELOAD={self.library}")
        return subprocess.run([self.mpiexec, "-np", str(ranks), self.wrapper, str(rank), *variables, "--", self.program, *words],
                              env=environment, capture_output=True, text=True, timeout=300, errors="replace")

    def configuration(self):
        """(name, ranks, path) of a run that is drawn, or None if its parts do not go together."""
        draw = self.draw
        policy, wrapper, work = (draw.choice(list(table)) for table in (POLICIES, WRAPPERS, self.work))
        ranks = draw.choice(self.ranks)
        config = {"seed": draw.randrange(100), "optim": {"name": "sgd", "lr": 0.05, "momentum": 0.9},
                  "train": {"epochs": 2, "checkpoint_interval": 2, "keep_best": 1},
                  "compression": {"advanced": {"min_elements": 16, "group_size": 32}}}
        merged(config, WORK[work])
        merged(config["compression"], POLICIES[policy])
        if "memory_budget" in config["compression"] or config["compression"].get("bits") == 0:
            config["compression"].pop("advanced")
        merged(config, WRAPPERS[wrapper])
        if config["optim"]["name"] != "sgd":
            config["optim"].pop("momentum")
        if config["compression"].get("offload"):
            config["compression"]["offload"] = self.folder
        name = f"{policy}, {wrapper}, {work}, {ranks} ranks"
        if ranks > 1:
            sharding = draw.choice(SHARDING)
            merged(config, {"distributed": {"sharding": sharding, "timeout": 60}})
            name += f", sharding {sharding}"
        path = os.path.join(self.folder, "config.json")
        with open(path, "w") as file:
            json.dump(config, file)
        return name, (policy, wrapper, work, ranks), ranks, path

    def run_one(self, most):
        name, kinds, ranks, path = self.configuration()
        out, counts = os.path.join(self.folder, "run"), os.path.join(self.folder, "counts.RANK")
        shutil.rmtree(out, ignore_errors=True)
        os.makedirs(out)  # so that its path is known to the watch
        os.rmdir(out)
        ran = self.start_on(ranks, "all", {"folder": self.folder, "counts": counts}, "train", path, "--out", out, "--quiet")
        if ran.returncode == 2:  # these parts do not go together
            said = ran.stderr.strip().splitlines()
            self.refused[said[0][:200] if said else "?"] = name
            return
        if ran.returncode != 0:
            self.report(name + ", the run without a kill", ran, "ended")
            return
        numbers = []
        for rank in range(ranks):
            with open(counts.replace("RANK", str(rank))) as file:
                numbers.append({kind: int(number) for kind, number in (line.split() for line in file)})
        reference = self.files(out)
        shutil.rmtree(out)
        self.runs += 1
        killed = []
        for _ in range(min(3, most)):
            rank = self.draw.randrange(ranks)
            kind = self.draw.choice(["any", "new"]) if numbers[rank]["any"] > 0 else "new"
            place = self.draw.randint(1, numbers[rank][kind])
            words = ["--resume"] if os.path.exists(os.path.join(out, "checkpoint", "state.safetensors")) else ["--overwrite"]
            ran = self.start_on(ranks, rank, {"folder": self.folder, "kill": f"{kind}:{place}"}, "train", path, "--out", out, "--quiet",
                                *words)
            if ran.returncode == 0:
                break  # the call did not come any more
            if ranks == 1 and ran.returncode != -9:
                self.report(f"{name}, {kind} {place} after {killed}", ran, "was to be killed")
                return
            killed.append(f"{kind} {place} of rank {rank}")
            self.kills += 1
            for part in kinds:
                self.tried_kinds[part] = self.tried_kinds.get(part, 0) + 1
        words = ["--resume"] if os.path.exists(os.path.join(out, "checkpoint", "state.safetensors")) else ["--overwrite"]
        ran = self.start_on(ranks, 0, {}, "train", path, "--out", out, "--quiet", *words)
        what = f"{name}, killed at {killed}"
        before = self.wrong
        if ran.returncode != 0:
            self.report(what, ran, "does not go on")
        elif ranks == 1:
            self.same_as(what, reference, out, ran)
        else:
            self.same_run(what, reference, out, ran)
        if self.wrong > before:
            kept = f"kills-{self.wrong}.json"
            shutil.copy(path, kept)
            print(f"  its configuration: {kept}", flush=True)

    def same_run(self, what, reference, out, ran):
        """Ranks arrange the buckets of gradients anew after a resume, so what memory they took differs."""
        now = self.files(out)
        if sorted(now) != sorted(reference):
            self.report(what, ran, f"other files: {sorted(set(now) ^ set(reference))}")
            return
        for name, content in reference.items():
            if name in ("metrics.csv", "checkpoint/state.safetensors") or content == b"":
                continue
            if name == "metrics.jsonl":
                def lines(text):
                    return [line for line in text.splitlines() if b'"type":"memory"' not in line]
                equal = lines(content) == lines(now[name])
            else:
                equal = content == now[name]
            if not equal:
                self.report(what, ran, f"{name} differs")
                return


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("watched_calls")
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--mpiexec", default=shutil.which("mpiexec"))
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--work", nargs="+", choices=list(WORK), metavar="KIND",
                        default=[kind for kind in WORK if kind not in WITH_LARGE_CHECKPOINTS])
    arguments = parser.parse_args()
    ranks = arguments.ranks if arguments.mpiexec else [1]
    all_ = Kills(arguments.program, arguments.watched_calls, arguments.seed, arguments.mpiexec, ranks,
                 arguments.work)
    try:
        drawn = said = 0
        while all_.kills < arguments.kills and drawn < 20 * arguments.kills:
            drawn += 1
            all_.run_one(arguments.kills - all_.kills)
            if all_.kills >= said + 50:
                said = all_.kills
                print(f"{said} kills, {all_.wrong} wrong", flush=True)
    finally:
        all_.close()
    for said, name in sorted(all_.refused.items()):
        print(f"refused: {name}: {said}")
    for table in (POLICIES, WRAPPERS, WORK, ranks):
        print("kills: " + ", ".join(f"{kind} {all_.tried_kinds.get(kind, 0)}" for kind in table))
    print(f"{all_.kills} kills in {all_.runs} runs of {drawn} drawn, {all_.wrong} wrong")
    return 1 if all_.wrong or all_.kills == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
