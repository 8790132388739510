#!/usr/bin/env python3
# SPDX-License-Identifier: MPL-2.0
"""Writes tests/data/golden.json: what libvmaf's scalar C path gives for the clips of clips.py.

    make_golden.py REFERENCES [--models FOLDER] [--check FFMPEG]

REFERENCES is a folder with the numpy references of the specification (adm.py, vif_motion.py,
psnr_ssim.py, model.py), which reproduce libvmaf 3.2.0 to the last bit. FOLDER holds the model files
(default: models/ of the repository). Needs numpy.

With --check nothing is written: every number but those of the bootstrap collection, which ffmpeg cannot
load, is compared with the libvmaf of that ffmpeg binary, at its 6 decimals. Where libvmaf runs AVX2 code,
the ADM of the clips of 97 samples per row may differ: that code reads past the last column of a wavelet
band of some widths. The other sizes are safe.
"""
import argparse
import json
import sys
import tempfile
from pathlib import Path

import numpy as np
import peer
from clips import CLIPS

ROOT = Path(__file__).resolve().parents[2]
MODELS = ["vmaf_v0.6.1", "vmaf_v0.6.1neg", "vmaf_4k_v0.6.1", "vmaf_4k_v0.6.1neg"]
COLLECTION = "vmaf_b_v0.6.3"
ADM_KEYS = ["integer_adm2", "integer_aim", "integer_adm3", *(f"integer_adm_scale{s}" for s in range(4))]


def load_models(refs, folder):
    """Name to parsed model. The 4k neg model is the 4k model with the options of v0.6.1neg."""
    neg = json.loads((folder / "vmaf_v0.6.1neg.json").read_text())["model_dict"]["feature_opts_dicts"]
    models = {}
    for name in MODELS:
        obj = json.loads((folder / f"{name.replace('4k_v0.6.1neg', '4k_v0.6.1')}.json").read_text())
        if name == "vmaf_4k_v0.6.1neg":
            obj["model_dict"]["feature_opts_dicts"] = neg
        models[name] = refs.model.parse_model(obj, name)
    return models, refs.model.load(folder / f"{COLLECTION}.json", "score")


def features(refs, clip):
    """One {feature key: value} per frame, keys as libvmaf's models look them up."""
    adm, vif, options = refs.adm.adm, refs.vif_motion.vif_frame, refs.adm.PRESETS
    # libvmaf's chroma planes have floor(n / 2) samples: the last column or row of an odd size is cut off.
    half = [(clip.height >> (clip.chroma == "420"), clip.width >> (clip.chroma != "444"))] * 2
    sizes = [(clip.height, clip.width), *half]
    psnr = refs.psnr_ssim.Psnr([(w, h) for h, w in sizes], clip.depth, enable_mse=True, enable_apsnr=True)
    motion = refs.vif_motion.MotionStream(clip.width, clip.height, clip.depth)
    out, moved = [], []
    for index in range(clip.frames):
        ref, dis = ([p[:h, :w] for p, (h, w) in zip(clip.planes(index, d), sizes)] for d in (False, True))
        std, neg = adm(ref[0], dis[0], clip.depth, [options["v0.6.1"], options["v0.6.1neg"]])
        frame = {k: std[k] for k in ADM_KEYS} | {f"{k}_egl_1": neg[k] for k in ADM_KEYS}
        for suffix, gain in (("", 100.0), ("_egl_1", 1.0)):
            scores = vif(ref[0], dis[0], clip.depth, gain)["score"]
            frame |= {f"integer_vif_scale{s}{suffix}": float(v) for s, v in enumerate(scores)}
        out.append(frame | psnr.frame(ref, dis) | classic(refs.psnr_ssim, clip, ref, dis))
        moved += motion.push(ref[0])
    for (_, sad, motion2, motion3), frame in zip(moved + motion.finish(), out):
        frame["VMAF_integer_feature_motion_sad_score"] = sad
        frame["integer_motion2"], frame["integer_motion3"] = motion2, motion3
    return out, psnr.finish()


def classic(refs, clip, ref, dis):
    """What is computed of each frame on its own, where the clip is of a kind that it is defined for."""
    bits = clip.depth
    out = refs.float_ssim(ref[0], dis[0], bits, enable_lcs=True)
    if min(clip.width, clip.height) >= 176:
        out |= refs.float_ms_ssim(ref[0], dis[0], bits, enable_lcs=True)
    if bits <= 12:
        out |= refs.psnr_hvs(ref, dis, bits)
    return out | refs.ciede(upsampled(ref), upsampled(dis), bits)


def upsampled(planes):
    """Chroma for each luma sample; the last one again beyond the end. libvmaf's is undefined in 4:2:2 and odd sizes."""
    size = planes[0].shape
    rows, columns = ([np.minimum(np.arange(n) >> (c < n), c - 1) for n, c in zip(size, planes[1].shape)])
    return [planes[0], *(plane[rows][:, columns] for plane in planes[1:])]


def entry(refs, clip, models, collection):
    """Everything golden.json says about a clip."""
    frames, aggregates = features(refs, clip)
    predict = refs.model.predict
    return {
        "width": clip.width, "height": clip.height, "depth": clip.depth, "chroma": clip.chroma,
        "frames": clip.frames,
        "crc32": {"ref": clip.crc32(False), "dist": clip.crc32(True)},
        "features": frames,
        "aggregates": aggregates,
        "scores": {name: [predict(m, f) for f in frames] for name, m in models.items()},
        "bootstrap": {COLLECTION: [refs.model.predict_collection(collection, f) for f in frames]},
    }


def extractors(clip):
    """What to ask the peer for, beside its models."""
    yield from ("psnr:enable_mse=true", "float_ssim:enable_lcs=true", "ciede")
    if min(clip.width, clip.height) >= 176:
        yield "float_ms_ssim:enable_lcs=true"
    if clip.depth <= 12:
        yield "psnr_hvs"


def check(clip, ours, ffmpeg):
    """Prints how far each number is from the peer's; True if all agree at 6 decimals."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [f"{folder}/ref.yuv", f"{folder}/dist.yuv"]
        for path, distorted in zip(paths, (False, True)):
            clip.write(path, distorted)
        theirs = peer.score(*paths, clip.width, clip.height, clip.pix_fmt, MODELS, ffmpeg,
                            features=extractors(clip))
    worst = {}
    for index, (features, metrics) in enumerate(zip(ours["features"], theirs, strict=True)):
        # Where libvmaf's colours are undefined there is nothing to compare with.
        ours_only = {"ciede2000"} if clip.chroma == "422" or clip.width % 2 or clip.height % 2 else set()
        features = {key: value for key, value in features.items() if key not in ours_only}
        for key, value in (features | {m: ours["scores"][m][index] for m in MODELS}).items():
            gap = abs(value - metrics[key])
            if gap > 0.51e-6:
                worst[key] = max(gap, worst.get(key, 0.0))
    print(f"{clip.name}: {worst or 'agrees'}")
    return not worst


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("references", type=Path)
    p.add_argument("--models", type=Path, default=ROOT / "models")
    p.add_argument("--check", metavar="FFMPEG")
    args = p.parse_args()
    sys.path.append(str(args.references))
    import adm, model, psnr_ssim, vif_motion  # noqa: E401
    refs = argparse.Namespace(adm=adm, model=model, psnr_ssim=psnr_ssim, vif_motion=vif_motion)
    models, collection = load_models(refs, args.models)
    golden = {clip.name: entry(refs, clip, models, collection) for clip in CLIPS}
    if args.check:
        sys.exit(not all([check(clip, golden[clip.name], args.check) for clip in CLIPS]))
    # Python prints a double with the digits that bring back the same bits.
    (ROOT / "tests/data/golden.json").write_text(json.dumps(golden, indent=1) + "\n")


if __name__ == "__main__":
    main()
