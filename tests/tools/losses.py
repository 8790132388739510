# SPDX-License-Identifier: MPL-2.0
"""Common code of the checks of archives on clusters: titles, processes that are killed, and the comparison with whole titles."""
import filecmp
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "target/debug/hipvmaf"
# Limit of `poll` in seconds.
PATIENCE = 240


def output_of(*command, code=0):
    """Returns the output of a command. Exits with an error if the command ends with another code."""
    done = subprocess.run([*map(str, command)], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode != code:
        sys.exit(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stdout}")
    return done.stdout


def poll(what, look):
    """Calls `look` until it returns a value, and returns that."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if found := look():
            return found
        time.sleep(0.1)
    sys.exit(f"After {PATIENCE} seconds: {what}")


class Archive:
    """Two titles in a folder, planned in chunks of two seconds."""

    NAMES = ("news", "sports")

    def __init__(self, folder):
        shutil.rmtree(folder, ignore_errors=True)
        self.folder, self.plan, self.merged = folder, folder / "plan", folder / "merged"
        self.plan.mkdir(parents=True)
        lines = ["name,reference,distorted"]
        for name, caps, muxer in zip(self.NAMES, ("framerate=24000/1001", "framerate=50/1"), ("matroskamux", "mp4mux")):
            film, encoded = (folder / f"{name}.{side}" for side in ("film", "encoded"))
            queue = "queue max-size-buffers=0 max-size-time=0 max-size-bytes=0"
            encoder = "x264enc speed-preset=ultrafast threads=2 bframes=2"
            output_of("gst-launch-1.0", "-q", *(
                f"videotestsrc num-buffers=800 pattern=ball ! video/x-raw,format=I420,width=640,height=360,{caps} ! tee name=film "
                f"film. ! {queue} ! {encoder} bitrate=2000 key-int-max=25 ! {muxer} ! filesink location={film} "
                f"film. ! {queue} ! {encoder} bitrate=60 key-int-max=40 ! {muxer} ! filesink location={encoded}").split())
            lines.append(f"{name},{film},{encoded}")
        (folder / "list.csv").write_text("\n".join(lines) + "\n")
        self("plan", folder / "list.csv", "-o", self.plan, "--chunk", 2)
        self.chunks = set(self.missing())

    def __call__(self, command, *args, code=0):
        return output_of(PROGRAM, "archive", command, *args, code=code)

    def missing(self):
        """Returns the missing chunks by the reason."""
        status = subprocess.run([PROGRAM, "archive", "status", self.plan, "--json"], stdout=subprocess.PIPE)
        titles = json.loads(status.stdout)["titles"]
        return {chunk["chunk"]: chunk["why"] for title in titles for chunk in title["missing"]}

    def done(self):
        """How many chunks are there."""
        return sum(1 for _ in self.plan.glob("chunks/*/*.jsonl"))

    def workers(self):
        """The processes that score chunks of the plan."""
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = path.read_bytes().split(b"\0")
            except OSError:
                continue
            if words[1:3] == [b"archive", b"run"] and words[0] == bytes(PROGRAM) and bytes(self.plan) in words:
                yield int(path.parent.name)

    def kill_some(self, times):
        """Kills processes that score, one at a time, each once another chunk is there."""
        for _ in range(times):
            before = self.done()
            poll("no further chunk is scored", lambda: self.done() > before)
            os.kill(random.choice(poll("nothing is being scored", lambda: [*self.workers()])), signal.SIGKILL)

    def compare(self):
        """Checks that the merged results are equal to those of the whole titles."""
        for line in (self.folder / "list.csv").read_text().splitlines()[1:]:
            name, *files = line.split(",")
            whole = self.folder / f"{name}.json"
            if not whole.exists():
                output_of(PROGRAM, "score", *files, "--results", whole, "--no-provenance")
            if not filecmp.cmp(whole, self.merged / f"{name}.json", shallow=False):
                sys.exit(f"{self.merged}/{name}.json is not what hipvmaf score writes: {whole}")

    def check_once(self, logs, chunks):
        """Checks that each of these chunks is scored once, except for those whose process was killed before it printed so."""
        scored = re.findall(r"^(\S+/\d+) scored$", logs, re.M)
        if len(scored) != len(set(scored)) or not set(scored) <= set(chunks):
            sys.exit(f"chunks were scored twice: {sorted(scored)}")
        return len(scored)
