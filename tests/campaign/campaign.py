#!/usr/bin/env python3
"""Breaks trainings on purpose, and looks whether they go on to the same bits.

usage: campaign.py PROGRAM WATCHED_CALLS [--part PART ...] [--most N] [--seed S] [--policy NAME ...]

Parts:
  failures  one call fails: every call on a file, every thread, every mapping, and operator new
  kills     the process ends right before a call on a file, for each of these calls
  power     a power cut after each change of a file: what was not synced is lost, or its name alone
            is kept
A run that failed says why and ends with status 1 or 2. Then it goes on, or starts anew if it has no
checkpoint, and its files are equal to those of a run that nothing happened to.

--most N tries at most N places of each kind, drawn by the seed; 0 (the default) tries all.
Exit status: 0, nothing was wrong; 1, something was; 2, a mistake on the command line.
"""
import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile

NETWORK = {"name": "sequential", "modules": [
    {"conv2d": {"out_channels": 4, "kernel_size": 3, "padding": 1}}, "batch_norm", "relu", "mean_pool",
    {"linear": 3}]}
DATA = {"name": "random", "shape": [8, 8, 1], "classes": 3, "train_samples": 24, "test_samples": 8,
        "batch_size": 8, "workers": 2}
POLICIES = {
    "gact": {"policy": "gact", "bits": 4},
    "adaptive": {"policy": "gact", "bits": 3, "gact": {"adaptive": True}},
    "actnn": {"policy": "actnn", "level": "L3"},
    "acgc": {"policy": "acgc"},
    "offload": {"policy": "gact", "bits": 4, "offload": "FOLDER"},
}
KINDS = ["open", "read", "write", "sync", "name", "remove", "folder", "cut", "thread", "map", "new"]
# What a run writes that depends on time or on the machine.
TIMED = ("report.html", "tensor_times.json", "summary.json", "seconds")


class Campaign:
    def __init__(self, program, library, most, seed):
        self.program, self.library, self.most = program, library, most
        self.draw = random.Random(seed)
        self.folder = tempfile.mkdtemp(prefix="frugal-campaign-", dir=self.memory_folder())
        self.tried = self.wrong = 0

    @staticmethod
    def memory_folder():
        return "/dev/shm" if os.path.isdir("/dev/shm") else None

    def close(self):
        shutil.rmtree(self.folder, ignore_errors=True)

    def places(self, count):
        if self.most == 0 or count <= self.most:
            return list(range(1, count + 1))
        return sorted(self.draw.sample(range(1, count + 1), self.most))

    def start(self, *arguments, **watch):
        environment = dict(os.environ, OMP_NUM_THREADS="1", OMP_WAIT_POLICY="passive", FRUGAL_LOG="warn",
                           HOME="/nonexistent", TMPDIR=self.folder)
        environment.pop("FRUGAL_DATA", None)
        if watch:
            environment["LD_PRELOAD"] = self.library
            for name, value in watch.items():
                environment["FRUGAL_WATCH_" + name.upper()] = value
        return subprocess.run([self.program, *arguments], env=environment, capture_output=True, text=True,
                              timeout=120, errors="replace")

    def report(self, what, ran, why):
        self.wrong += 1
        print(f"WRONG: {what}: {why}; status {ran.returncode if ran else '-'}")
        if ran:
            lines = (ran.stderr or ran.stdout).strip().splitlines()
            errors = [line for line in lines[:-6] if "error: " in line]  # mpiexec says more behind them
            print("  " + "\n  ".join(errors[:6] + lines[-6:]))
        sys.stdout.flush()

    # A run in `out` that is not ended: it goes on, or starts anew.
    def finish(self, config, out):
        if os.path.exists(os.path.join(out, "checkpoint", "state.safetensors")):
            return self.start("train", config, "--out", out, "--resume", "--quiet")
        return self.start("train", config, "--out", out, "--overwrite", "--quiet")

    @staticmethod
    def files(out):
        found = {}
        for folder, _, names in os.walk(out):
            for name in names:
                path = os.path.join(folder, name)
                relative = os.path.relpath(path, out)
                if relative.startswith("tensorboard") or name in TIMED:
                    found[relative.split("/")[0]] = b""
                    continue
                with open(path, "rb") as file:
                    found[relative] = file.read()
        return found

    def same_as(self, what, reference, out, ran, peaks=True):
        now = self.files(out)
        if not peaks:
            reference = dict(reference)
            for files in (now, reference):
                files["checkpoint/state.safetensors"] = without_peaks(files["checkpoint/state.safetensors"])
        if sorted(now) != sorted(reference):
            missing, more = set(reference) - set(now), set(now) - set(reference)
            self.report(what, ran, f"other files: missing {sorted(missing)}, more {sorted(more)}")
            return
        for name, content in reference.items():
            if name == "metrics.csv" or content == b"":
                continue
            if now[name] != content:
                self.report(what, ran, f"{name} differs")
                return

    def check_failure(self, what, ran, harmless=False):
        if ran.returncode < 0 or ran.returncode > 2:
            self.report(what, ran, "ended by a signal or with another status")
        elif ran.returncode != 0 and "error:" not in ran.stderr and not harmless:
            self.report(what, ran, "no message")
        for word in ("terminate called", "Sanitizer", "Aborted", "Segmentation"):
            if word in ran.stderr:
                self.report(what, ran, "ended by an exception or a signal")

    def config(self, name, compression):
        path = os.path.join(self.folder, name + ".json")
        with open(path, "w") as file:
            json.dump({"model": NETWORK, "data": DATA, "optim": {"name": "sgd", "lr": 0.1, "momentum": 0.9},
                       "train": {"epochs": 2, "checkpoint_interval": 2, "keep_best": 1},
                       "compression": {key: self.folder if value == "FOLDER" else value
                                       for key, value in compression.items()}}, file)
        return path

    def counts(self, *arguments):
        path = os.path.join(self.folder, "counts")
        ran = self.start(*arguments, folder=self.folder, counts=path)
        if ran.returncode != 0:
            sys.exit(f"the run without a failure ended with {ran.returncode}:\n{ran.stderr}")
        with open(path) as file:
            return {name: int(number) for name, number in (line.split() for line in file)}

    # One training, broken at each place.
    def break_training(self, name, compression, part):
        config, out = self.config(name, compression), os.path.join(self.folder, name)
        shutil.rmtree(out, ignore_errors=True)
        counts = self.counts("train", config, "--out", out, "--quiet")
        reference = self.files(out)
        shutil.rmtree(out)
        if part == "power":
            self.cut_power(name, config, out, reference)
            return
        before = self.tried
        for kind in KINDS if part == "failures" else ["any"]:
            for place in self.places(counts[kind]):
                shutil.rmtree(out, ignore_errors=True)
                os.makedirs(out)  # so that its path is known to the watch
                os.rmdir(out)
                what = f"{name}, {part[:-1]}, {kind} {place}"
                watch = {"fail" if part == "failures" else "kill": f"{kind}:{place}"}
                ran = self.start("train", config, "--out", out, "--quiet", folder=self.folder, **watch)
                self.tried += 1
                if part == "failures":
                    self.check_failure(what, ran, harmless=kind == "thread")
                elif ran.returncode not in (-9, 0):
                    self.report(what, ran, "was to be killed")
                if ran.returncode == 0 and part == "failures":  # the program could do without
                    expected = dict(reference)
                    if "report.html was not written" in ran.stdout + ran.stderr:
                        expected.pop("report.html")
                    # Another way to open the file of activations needs other buffers.
                    self.same_as(what, expected, out, ran, peaks=name != "offload")
                    continue
                again = self.finish(config, out)
                if again.returncode != 0:
                    self.report(what + ", then goes on", again, "does not go on")
                else:
                    self.same_as(what + ", then goes on", reference, out, again)
        print(f"{name}: {part}: {self.tried - before} places of {json.dumps(counts)}")
        sys.stdout.flush()

    # Commands that read a run: a failure leaves it as it is.
    def break_readers(self):
        config, out = self.config("readers", POLICIES["gact"]), os.path.join(self.folder, "readers")
        if self.start("train", config, "--out", out, "--quiet").returncode != 0:
            sys.exit("the training for the readers failed")
        reference = self.files(out)
        other = os.path.join(self.folder, "written")
        for words in (["eval", out], ["export", out, "--format", "safetensors", "--output", other], ["report", out, "--out", other],
                      ["inspect", out]):
            counts = self.counts(*words)
            before = self.tried
            for kind in KINDS:
                for place in self.places(counts[kind]):
                    if os.path.exists(other):
                        os.remove(other)
                    what = f"{words[0]}, failure, {kind} {place}"
                    ran = self.start(*words, folder=self.folder, fail=f"{kind}:{place}")
                    self.tried += 1
                    self.check_failure(what, ran, harmless=kind == "thread")
                    self.same_as(what, reference, out, ran)
            print(f"{words[0]}: failures: {self.tried - before} places of {json.dumps(counts)}")
            sys.stdout.flush()

    def cut_power(self, name, config, out, reference):
        trace = os.path.join(self.folder, "trace")
        ran = self.start("train", config, "--out", out, "--quiet", folder=self.folder, trace=trace)
        if ran.returncode != 0:
            sys.exit(f"the run that is traced ended with {ran.returncode}:\n{ran.stderr}")
        records = [r for r in read_trace(trace) if touches(r, out)]
        shutil.rmtree(out)
        before, seen = self.tried, set()
        for place in self.places(len(records)):
            for names_kept in (False, True):
                state = disk_after(records[:place], out, names_kept)
                key = tuple(sorted(state.items()))
                if key in seen:
                    continue
                seen.add(key)
                shutil.rmtree(out, ignore_errors=True)
                lay_out(state)
                what = f"{name}, power cut after record {place} of {len(records)}" + (
                    ", names kept" if names_kept else "")
                self.tried += 1
                again = self.finish(config, out)
                if again.returncode != 0:
                    self.report(what, again, "does not go on")
                else:
                    self.same_as(what, reference, out, again)
        print(f"{name}: power: {self.tried - before} different disks after {len(records)} changes")
        sys.stdout.flush()


def without_peaks(state):
    """A checkpoint without the peaks of memory that it notes."""
    size = int.from_bytes(state[:8], "little")
    header = json.loads(state[8:8 + size])
    run = json.loads(header["__metadata__"]["run"])
    for key in ("peak", "at_peak"):
        run["memory"].pop(key)
    header["__metadata__"]["run"] = run
    return json.dumps(header, sort_keys=True).encode() + state[8 + size:]


def read_trace(path):
    with open(path, "rb") as file:
        data = file.read()
    records, at = [], 0
    while at < len(data):
        end = data.index(b"\n", at)
        verb, _, rest = data[at:end].decode().partition(" ")
        at = end + 1
        if verb == "write":
            inode, offset, size = map(int, rest.split())
            records.append(("write", inode, offset, data[at:at + size]))
            at += size
        elif verb in ("create", "folder"):
            inode, _, name = rest.partition(" ")
            records.append((verb, int(inode), os.path.normpath(name)))
        elif verb == "rename":
            records.append((verb, *map(os.path.normpath, rest.split("\t"))))
        elif verb == "cut":
            records.append((verb, *map(int, rest.split())))
        elif verb == "sync":
            records.append((verb, int(rest)))
        else:
            records.append((verb, os.path.normpath(rest)))
    return records


def touches(record, out):
    paths = [part for part in record[1:] if isinstance(part, str)]
    return not paths or any(path == out or path.startswith(out + "/") for path in paths)


def disk_after(records, out, names_kept):
    """What lies on the disk when the power goes: path -> content, None for a folder.

    Content is what the last fsync of its file saw. Names of a folder are those that its last fsync
    saw; with `names_kept` all of them, as a file system may write names before contents."""
    content, synced = {}, {}
    names, synced_names, folders = {}, {}, {}
    for record in records:
        verb = record[0]
        if verb == "create":
            content.setdefault(record[1], b"")
            names[record[2]] = record[1]
        elif verb == "folder":
            folders[record[1]] = record[2]
            names[record[2]] = None
        elif verb == "write":
            inode, offset, data = record[1:]
            old = content.get(inode, b"").ljust(offset, b"\0")
            content[inode] = old[:offset] + data + old[offset + len(data):]
        elif verb == "cut":
            content[record[1]] = content.get(record[1], b"")[:record[2]].ljust(record[2], b"\0")
        elif verb == "rename":
            if record[1] in names:
                names[record[2]] = names.pop(record[1])
        elif verb == "remove":
            names.pop(record[1], None)
        elif verb == "sync":
            if record[1] in folders:
                folder = folders[record[1]]
                kept = {p: i for p, i in synced_names.items() if os.path.dirname(p) != folder}
                kept.update({p: i for p, i in names.items() if os.path.dirname(p) == folder})
                synced_names = kept
            elif record[1] in content:
                synced[record[1]] = content[record[1]]
            else:  # the folder around the run
                if out in names:
                    synced_names[out] = names[out]
    shown = names if names_kept else synced_names
    state = {}
    for path, inode in shown.items():
        parent = os.path.dirname(path)
        if path != out and parent != os.path.dirname(out) and parent not in shown:
            continue  # its folder is lost
        state[path] = None if inode is None else synced.get(inode, b"")
    return state


def lay_out(state):
    for path in sorted(state):
        if state[path] is None:
            os.makedirs(path, exist_ok=True)
            continue
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(state[path])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("watched_calls")
    parser.add_argument("--part", action="append", choices=["failures", "kills", "power", "readers"])
    parser.add_argument("--policy", action="append", choices=sorted(POLICIES))
    parser.add_argument("--most", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    campaign = Campaign(arguments.program, arguments.watched_calls, arguments.most, arguments.seed)
    try:
        for part in arguments.part or ["failures", "kills", "power", "readers"]:
            if part == "readers":
                campaign.break_readers()
                continue
            for name in arguments.policy or POLICIES:
                campaign.break_training(name, POLICIES[name], part)
    finally:
        campaign.close()
    print(f"{campaign.tried} places tried, {campaign.wrong} wrong")
    return 1 if campaign.wrong or campaign.tried == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
