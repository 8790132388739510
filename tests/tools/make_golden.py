#!/usr/bin/env python3
# SPDX-License-Identifier: MPL-2.0
"""Writes tests/data/golden.json: what libvmaf's scalar C path gives for the clips of clips.py.

    make_golden.py REFERENCES [--models FOLDER] [--check FFMPEG]

REFERENCES is a folder with the numpy references of the specification (adm.py, cambi.py, model.py,
psnr_ssim.py, speed_chroma.py, vif_motion.py), which reproduce libvmaf 3.2.0 to the last bit. FOLDER holds
the model files (default: models/ of the repository). Needs numpy.

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
V0 = ["vmaf_v0.6.1", "vmaf_v0.6.1neg", "vmaf_4k_v0.6.1", "vmaf_4k_v0.6.1neg"]
V1 = [f"vmaf_v1.0.16_{hfr}{view}" for hfr in ("", "hfr_") for view in ("3d0h", "5d0h", "1d5h_2160", "3d0h_2160")]
MODELS = V0 + V1
COLLECTION = "vmaf_b_v0.6.3"
ADM = ["integer_adm2", "integer_aim", "integer_adm3", *(f"integer_adm_scale{s}" for s in range(4))]
# Extractors by a part of their features' names, and the name of one of these features in models.
PARTS = {
    "adm": "VMAF_integer_feature_adm2_score",
    "motion": "VMAF_integer_feature_motion2_score",
    "vif": "VMAF_integer_feature_vif_scale0_score",
    "cambi": "Cambi_feature_cambi_score",
    "speed_chroma": "Speed_chroma_feature_speed_chroma_uv_score",
}
# Options of no model, besides those of the models.
MORE = {
    "adm": [{"adm_csf_mode": 3, "adm_norm_view_dist": 5.0, "adm_skip_scale0": True}],
    "motion": [{"motion_blend_factor": 0.5, "motion_blend_offset": 1.0, "motion_fps_weight": 1.5}],
}


def load_models(refs, folder):
    """Name to the file's content; models that have no file of their own are others with more options."""
    neg = json.loads((folder / "vmaf_v0.6.1neg.json").read_text())["model_dict"]["feature_opts_dicts"]
    models = {}
    for name in MODELS:
        obj = json.loads((folder / f"{name.replace('4k_v0.6.1neg', '4k_v0.6.1').replace('hfr_', '')}.json").read_text())
        options = obj["model_dict"].setdefault("feature_opts_dicts", [{} for _ in obj["model_dict"]["feature_names"]])
        if name == "vmaf_4k_v0.6.1neg":
            options[:] = neg
        if "hfr" in name:
            options[-1] |= {"motion_five_frame_window": True, "motion_moving_average": True}
        models[name] = obj
    return models, refs.model.load(folder / f"{COLLECTION}.json", "score")


def option_sets(models):
    """The distinct options of each extractor: the defaults, those of the models, and more."""
    sets = {part: [{}] for part in PARTS}
    for obj in models.values():
        for name, options in zip(obj["model_dict"]["feature_names"], obj["model_dict"]["feature_opts_dicts"]):
            part = next(part for part in sets if part in name)
            if options not in sets[part]:
                sets[part].append(options)
    return {part: options + MORE.get(part, []) for part, options in sets.items()}


def large_enough(part, options, clip):
    """Returns true if libvmaf computes an extractor with these options for frames of this size."""
    if part == "cambi":
        return max(clip.width, clip.height) >= 216
    if part == "speed_chroma":
        chroma = min(clip.height >> (clip.chroma == "420"), clip.width >> (clip.chroma != "444"))
        return chroma * options.get("speed_prescale", 1.0) >= 80
    return True


def features(refs, clip, sets):
    """One {feature key: value} per frame, keys as libvmaf's models look them up."""
    def keys(part, options, values):
        """The values with what libvmaf appends to the names of all features of an extractor."""
        name, bare = (refs.model.feature_key(PARTS[part], o) for o in (options, {}))
        return {k + name.removeprefix(bare): float(v) for k, v in values.items()}

    sets = {part: [o for o in options if large_enough(part, o, clip)] for part, options in sets.items()}
    # libvmaf's chroma planes have floor(n / 2) samples: the last column or row of an odd size is cut off.
    half = [(clip.height >> (clip.chroma == "420"), clip.width >> (clip.chroma != "444"))] * 2
    sizes = [(clip.height, clip.width), *half]
    psnr = refs.psnr_ssim.Psnr([(w, h) for h, w in sizes], clip.depth, enable_mse=True, enable_apsnr=True)
    out, luma = [], []
    for index in range(clip.frames):
        ref, dis = ([p[:h, :w] for p, (h, w) in zip(clip.planes(index, d), sizes)] for d in (False, True))
        luma.append(ref[0])
        frame = psnr.frame(ref, dis) | classic(refs.psnr_ssim, clip, ref, dis)
        options = [refs.adm.Options(**o) for o in sets["adm"]]
        for o, scores in zip(sets["adm"], refs.adm.adm(ref[0], dis[0], clip.depth, options)):
            frame |= keys("adm", o, {name: scores[name] for name in ADM})
        for o in sets["vif"]:
            vif = refs.vif_motion.vif_frame(ref[0], dis[0], clip.depth, o.get("vif_enhn_gain_limit", 100.0))
            frame |= keys("vif", o, {f"integer_vif_scale{s}": v for s, v in enumerate(vif["score"])})
        for o in sets["cambi"]:
            config = refs.cambi.Config(refs.cambi.Options(**o), clip.width, clip.height, clip.depth)
            frame |= keys("cambi", o, refs.cambi.cambi_frame(ref[0], dis[0], config))
        for o in sets["speed_chroma"]:
            speed, options = refs.speed_chroma.speed_chroma_frame, refs.speed_chroma.Options(**o)
            frame |= keys("speed_chroma", o, speed(ref[1:], dis[1:], clip.depth, options, "scalar"))
        out.append(frame)
    for o in sets["motion"]:
        config = refs.vif_motion.MotionConfig(**{k.removeprefix("motion_"): v for k, v in o.items()})
        motion = refs.vif_motion.MotionStream(clip.width, clip.height, clip.depth, config)
        moved = [final for plane in luma for final in motion.push(plane)] + motion.finish()
        for (_, sad, motion2, motion3), frame in zip(moved, out, strict=True):
            frame |= keys("motion", o, {"VMAF_integer_feature_motion_sad_score": sad, "integer_motion2": motion2,
                                        "integer_motion3": motion3})
    return out, psnr.finish()


def classic(refs, clip, ref, dis):
    """Returns the features that depend on a single frame and are defined for clips of this kind."""
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
    """Everything golden.json says about a clip. Models that need larger frames are left out."""
    frames, aggregates = features(refs, clip, option_sets(models))
    predict = refs.model.predict
    parsed = [refs.model.parse_model(obj, name) for name, obj in models.items()]
    possible = [model for model in parsed if all(key in frames[0] for key in model.keys)]
    return {
        "width": clip.width, "height": clip.height, "depth": clip.depth, "chroma": clip.chroma,
        "frames": clip.frames, "banded": clip.banded,
        "crc32": {"ref": clip.crc32(False), "dist": clip.crc32(True)},
        "features": frames,
        "aggregates": aggregates,
        "scores": {model.name: [predict(model, f) for f in frames] for model in possible},
        "bootstrap": {COLLECTION: [refs.model.predict_collection(collection, f) for f in frames]},
    }


def listed(part, options):
    """An extractor with options, as in hipvmaf's property `features`."""
    text = ":".join(f"{k}={str(v).lower()}" for k, v in options.items())
    return f"{part}={text}" if text else part


def classic_extractors(clip):
    """The extractors behind `classic` and PSNR."""
    yield from ("psnr=enable_mse=true", "float_ssim=enable_lcs=true", "ciede")
    if min(clip.width, clip.height) >= 176:
        yield "float_ms_ssim=enable_lcs=true"
    if clip.depth <= 12:
        yield "psnr_hvs"


def check(clip, ours, sets, ffmpeg):
    """Prints how far each number is from the peer's; True if all agree at 6 decimals."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [f"{folder}/ref.yuv", f"{folder}/dist.yuv"]
        for path, distorted in zip(paths, (False, True)):
            clip.write(path, distorted)
        wanted = [*classic_extractors(clip), *(listed(part, o) for part, options in sets.items() for o in options
                            if large_enough(part, o, clip))]
        theirs = peer.score(*paths, clip.width, clip.height, clip.pix_fmt, list(ours["scores"]), ";".join(wanted), ffmpeg)
    worst = {}
    # Where libvmaf's colours are undefined there is nothing to compare with.
    ours_only = {"ciede2000"} if clip.chroma == "422" or clip.width % 2 or clip.height % 2 else set()
    for index, (features, metrics) in enumerate(zip(ours["features"], theirs, strict=True)):
        features = {key: value for key, value in features.items() if key not in ours_only}
        for key, value in (features | {m: s[index] for m, s in ours["scores"].items()}).items():
            gap = abs(value - metrics[key])
            if gap > 0.51e-6:
                worst[key] = max(gap, worst.get(key, 0.0))
    print(f"{clip.name}: {worst or 'agrees'}")
    return not worst


def compact(value, depth=0):
    """JSON with the items of the outer levels on lines of their own."""
    if depth == 4 or not isinstance(value, (dict, list)) or not value:
        return json.dumps(value)
    ends = "{}" if isinstance(value, dict) else "[]"
    items = [f"{json.dumps(k)}: {compact(v, depth + 1)}" for k, v in value.items()] if isinstance(value, dict) else \
        [compact(v, depth + 1) for v in value]
    pad = "\n" + " " * depth
    return ends[0] + ",".join(f"{pad} {item}" for item in items) + pad + ends[1]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("references", type=Path)
    p.add_argument("--models", type=Path, default=ROOT / "models")
    p.add_argument("--check", metavar="FFMPEG")
    args = p.parse_args()
    sys.path.append(str(args.references))
    import adm, cambi, model, psnr_ssim, speed_chroma, vif_motion  # noqa: E401
    refs = argparse.Namespace(adm=adm, cambi=cambi, model=model, psnr_ssim=psnr_ssim, speed_chroma=speed_chroma,
                              vif_motion=vif_motion)
    models, collection = load_models(refs, args.models)
    golden = {clip.name: entry(refs, clip, models, collection) for clip in CLIPS}
    if args.check:
        sys.exit(not all([check(clip, golden[clip.name], option_sets(models), args.check) for clip in CLIPS]))
    # Python prints a double with the digits that bring back the same bits. A line for each frame or less.
    (ROOT / "tests/data/golden.json").write_text(compact(golden) + "\n")


if __name__ == "__main__":
    main()
