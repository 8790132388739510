# SPDX-License-Identifier: MPL-2.0
"""Scores the missing chunks of a hipvmaf archive on a Ray cluster, and merges them.

Each chunk is a task that runs `hipvmaf archive run DIR NAME/NUMBER` where Ray has room for it. Ray tries again what fails and
what is lost with a machine; that a chunk is scored once, and is there as a whole or not at all, is the program's business.

It is run as `python3 -m hipvmaf_ray`, so the machines of the cluster need Ray and not this module: what Ray sends them of a
main module is the code itself.
"""
import argparse
import json
import socket
import subprocess
import sys
import time

import ray
from ray.exceptions import RayError

# All was done; 4 says that a video is damaged, of which all that can be decoded was scored.
DONE = (0, 4)
# The command line is wrong, videos do not fit together, or it was ended: trying again does not help.
FINAL = (2, 3, 130, 143)


def score(command, chunk):
    """Scores a chunk. An exception has Ray try again. Returns what the program has said, and whether it has succeeded."""
    done = subprocess.run([*command, chunk], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, errors="replace")
    said = f"{done.stdout.strip() or chunk} on {socket.gethostname()}"
    if done.returncode not in DONE + FINAL:
        raise RuntimeError(f"{said}: ended with {done.returncode}")
    return said, done.returncode in DONE


def missing(program, folder):
    """The names of the chunks that are missing."""
    status = subprocess.run([program, "archive", "status", "--json", "--", folder], stdout=subprocess.PIPE, text=True)
    # 1 says that something is missing, and also that there is no plan, which has been said then.
    if status.returncode not in DONE + (1,) or not status.stdout:
        sys.exit(status.returncode)
    return [chunk["chunk"] for title in json.loads(status.stdout)["titles"] for chunk in title["missing"]]


def run(args, chunks):
    """Scores chunks, and says how far it is. Returns whether all have succeeded."""
    about = ray.init(address=args.address, log_to_driver=False, logging_level="warning")
    if about.dashboard_url:
        print(f"http://{about.dashboard_url} shows the tasks")
    # No more threads than it has CPUs by Ray's account.
    command = [args.program, "archive", "run", f"--backend={args.backend}", f"--decoder={args.decoder}",
               f"--threads={args.threads}", "--", args.folder]
    # Ray would end a worker behind each task that has a GPU, for its memory; here that is of the program that it has run.
    task = ray.remote(num_cpus=args.threads, num_gpus=args.gpus, max_calls=0, max_retries=args.retries, retry_exceptions=True,
                      scheduling_strategy="SPREAD")(score)
    waiting = {task.options(name=chunk).remote(command, chunk): chunk for chunk in chunks}
    start, done, failed = time.monotonic(), 0, 0
    while waiting:
        for ended in ray.wait([*waiting])[0]:
            chunk = waiting.pop(ended)
            try:
                said, succeeded = ray.get(ended)
            except RayError as error:
                said, succeeded = f"error: {chunk}: {getattr(error, 'cause', None) or error}", False
            done += 1
            failed += not succeeded
            left = (time.monotonic() - start) / done * len(waiting)
            print(f"{said}\n{done} of {len(chunks)} chunks, {failed} failed, about {left:.0f} s left", flush=True)
    return not failed


def main():
    parser = argparse.ArgumentParser(prog="hipvmaf_ray", description=__doc__.split("\n\n")[0])
    parser.add_argument("folder", metavar="DIR", help="the folder of the plan, which all machines see")
    parser.add_argument("-o", "--output", required=True, help="gets a file NAME.json for each title")
    parser.add_argument("--no-provenance", action="store_true", help="as merge has it")
    parser.add_argument("--program", default="hipvmaf", help="the program, on all machines")
    parser.add_argument("--address", help="of the cluster; without it that of RAY_ADDRESS or of this machine, or one of its own")
    parser.add_argument("--gpus", type=float, default=0, help="GPUs of each chunk, such as 0.25")
    parser.add_argument("--retries", type=int, default=2, help="how often to try again to score a chunk that has failed")
    parser.add_argument("--backend", default="auto", help="as run has it")
    parser.add_argument("--decoder", default="auto", help="as run has it")
    parser.add_argument("--threads", type=int, default=0, help="CPUs of each chunk; 0 for 1")
    args = parser.parse_args()
    args.threads = args.threads or 1
    chunks = missing(args.program, args.folder)
    scored = not chunks or run(args, chunks)
    # Names may begin with a dash.
    merge = [args.program, "archive", "merge", f"--output={args.output}", *["--no-provenance"] * args.no_provenance]
    merged = subprocess.run([*merge, "--", args.folder]).returncode
    sys.exit(merged or not scored)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
    except (ConnectionError, OSError) as problem:
        sys.exit(f"error: {problem}")
