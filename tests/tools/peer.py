#!/usr/bin/env python3
# SPDX-License-Identifier: MPL-2.0
"""Scores two raw videos with the libvmaf of an ffmpeg binary; prints a JSON array, one object per frame.

    peer.py REF DIST WIDTH HEIGHT PIX_FMT MODEL[,MODEL...] [FFMPEG]

MODEL is a built-in name of libvmaf; the score is reported under that name, features (with PSNR) under
libvmaf's names. Numbers have libvmaf's 6 decimals. ffmpeg's filter cannot load vmaf_b_v0.6.3.
FFMPEG defaults to the binary of the Python package imageio-ffmpeg.
"""
import json
import subprocess
import sys
import tempfile
from pathlib import Path


def score(ref, dist, width, height, pix_fmt, models, ffmpeg, threads=2, features=("psnr",)):
    """One {metric name: value} per frame. A feature extractor may be followed by options: `psnr:enable_mse=true`."""
    raw = ["-f", "rawvideo", "-video_size", f"{width}x{height}", "-pixel_format", pix_fmt]
    # The option's value is parsed once more by the filter, hence the backslash before its own separator.
    wanted = "|".join(f"version={m}\\:name={m}" for m in models)
    extractors = "|".join("name=" + feature.replace(":", "\\:") for feature in features)
    with tempfile.TemporaryDirectory() as folder:
        # A relative path: it needs no quoting inside the filter's options.
        graph = (f"[0:v][1:v]libvmaf=log_fmt=json:log_path=log.json:n_threads={threads}"
                 f":feature='{extractors}':model='{wanted}'")
        inputs = [*raw, "-i", str(Path(dist).resolve()), *raw, "-i", str(Path(ref).resolve())]
        run = subprocess.run([ffmpeg, "-v", "error", *inputs, "-lavfi", graph, "-f", "null", "-"],
                             cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if run.returncode:
            raise RuntimeError(f"ffmpeg failed: {run.stderr.strip()}")
        log = json.loads(Path(folder, "log.json").read_text())
    return [frame["metrics"] for frame in log["frames"]]


def main(args):
    if len(args) not in (6, 7):
        sys.exit(__doc__)
    ref, dist, width, height, pix_fmt, models = args[:6]
    if len(args) == 7:
        ffmpeg = args[6]
    else:
        import imageio_ffmpeg
        ffmpeg = imageio_ffmpeg.get_ffmpeg_exe()
    json.dump(score(ref, dist, width, height, pix_fmt, models.split(","), ffmpeg), sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1:])
