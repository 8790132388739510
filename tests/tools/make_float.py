#!/usr/bin/env python3
# SPDX-License-Identifier: MPL-2.0
"""Writes tests/data/float.json: what libvmaf's floating-point features are for the clips of clips.py.

    make_float.py LIBRARY [ITEM...]

LIBRARY is libvmaf.so.3 of a plain C build with float features (`-Denable_float=true -Denable_asm=false`). Items are features
with options, as hipvmaf's property `features` takes them; with some given, only these are computed again. Needs numpy.
"""
import ctypes
import json
import sys
import tempfile
from ctypes import POINTER, byref, c_char_p, c_double, c_int, c_uint, c_uint64, c_void_p
from pathlib import Path

from clips import CLIPS

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "tests/data/float.json"
ITEMS = [
    "float_ansnr",
    "float_moment",
    "float_motion",
    "float_motion=debug=false:motion_fps_weight=0.7:motion_max_val=4",
    "float_motion=motion_add_scale1=true",
    "float_motion=motion_add_scale1=true:motion_add_uv=true:motion_filter_size=3",
    "float_motion=motion_add_uv=true",
    "float_motion=motion_filter_size=1",
    "float_motion=motion_filter_size=3:motion_blend_factor=0.4:motion_blend_offset=3",
    "float_motion=motion_force_zero=true",
    "float_psnr",
    "speed_temporal",
    "speed_temporal=speed_kernelscale=1.5:speed_prescale=0.8:speed_prescale_method=bilinear",
    "speed_temporal=speed_max_val=3:speed_nn_floor=0.2:speed_sigma_nn=0.5:speed_use_ref_diff=true",
]
FORMATS = {"400": 4, "420": 1, "422": 2, "444": 3}
JSON = 2


class Configuration(ctypes.Structure):
    _fields_ = [("log_level", c_int), ("threads", c_uint), ("subsample", c_uint), ("cpumask", c_uint64), ("gpumask", c_uint64)]


class Picture(ctypes.Structure):
    _fields_ = [("format", c_int), ("bits", c_uint), ("w", c_uint * 3), ("h", c_uint * 3), ("stride", ctypes.c_ssize_t * 3),
                ("data", c_void_p * 3), ("ref", c_void_p), ("priv", c_void_p)]

    def fill(self, planes):
        """Copies the part of the planes that libvmaf reads: odd chroma planes lack their last column and row."""
        for i, plane in enumerate(planes):
            plane = plane[:self.h[i], :self.w[i]].astype("<u2" if self.bits > 8 else "u1")
            for y, row in enumerate(plane):
                ctypes.memmove(self.data[i] + y * self.stride[i], row.tobytes(), row.nbytes)


def checked(code):
    if code:
        raise RuntimeError(f"libvmaf returned {code}")


class Library:
    def __init__(self, path):
        self.calls = ctypes.CDLL(path)
        self.calls.vmaf_init.argtypes = [POINTER(c_void_p), Configuration]
        self.calls.vmaf_read_pictures.argtypes = [c_void_p, c_void_p, c_void_p, c_uint]
        self.calls.vmaf_feature_score_at_index.argtypes = [c_void_p, c_char_p, POINTER(c_double), c_uint]
        self.calls.vmaf_use_feature.argtypes = [c_void_p, c_char_p, c_void_p]
        self.calls.vmaf_write_output.argtypes = [c_void_p, c_char_p, c_int]
        self.calls.vmaf_close.argtypes = [c_void_p]

    def scores(self, chroma, bits, frames, item):
        """{name: values of all frames} of a feature; frames are pairs of lists of planes."""
        context, options = c_void_p(), c_void_p()
        checked(self.calls.vmaf_init(byref(context), Configuration(0, 0, 0, 0, 0)))
        name, *rest = item.split("=", 1)
        for option in rest[0].split(":") if rest else []:
            key, value = option.split("=")
            checked(self.calls.vmaf_feature_dictionary_set(byref(options), key.encode(), value.encode()))
        checked(self.calls.vmaf_use_feature(context, name.encode(), options))
        for index, pair in enumerate(frames):
            pictures = [Picture(), Picture()]
            for picture, planes in zip(pictures, pair):
                height, width = planes[0].shape
                checked(self.calls.vmaf_picture_alloc(byref(picture), FORMATS[chroma], bits, width, height))
                picture.fill(planes)
            checked(self.calls.vmaf_read_pictures(context, byref(pictures[0]), byref(pictures[1]), index))
        checked(self.calls.vmaf_read_pictures(context, None, None, 0))
        with tempfile.NamedTemporaryFile() as report:
            checked(self.calls.vmaf_write_output(context, report.name.encode(), JSON))
            names = json.loads(Path(report.name).read_text())["pooled_metrics"].keys()
        values = {name: [self.score(context, name, index) for index in range(len(frames))] for name in names}
        self.calls.vmaf_close(context)
        return values

    def score(self, context, name, index):
        """Reports have short names, the table long ones."""
        value = c_double()
        for stored in [name, f"VMAF_feature_{name}_score", f"Speed_temporal_feature_{name}_score"]:
            if self.calls.vmaf_feature_score_at_index(context, stored.encode(), byref(value), index) == 0:
                return value.value
        raise KeyError(name)


def takes(item, clip):
    """Returns false where libvmaf reads memory outside of its planes, or memory that it has not written."""
    if item.startswith("speed_temporal"):
        return min(clip.width, clip.height) >= 100
    return "add_uv" not in item or "add_scale1" not in item or clip.chroma == "444"


def main(path, *wanted):
    library = Library(path)
    golden = json.loads(DATA.read_text()) if DATA.exists() else {}
    for item in wanted or ITEMS:
        golden[item] = {}
        for clip in filter(lambda clip: takes(item, clip), CLIPS):
            frames = [[clip.planes(index, distorted) for distorted in (False, True)] for index in range(clip.frames)]
            golden[item][clip.name] = library.scores(clip.chroma, clip.depth, frames, item)
    of_item = lambda clips: ",\n".join(f" {json.dumps(clip)}: {json.dumps(values)}" for clip, values in clips.items())
    lines = [f"{json.dumps(item)}: {{\n{of_item(clips)}\n}}" for item, clips in sorted(golden.items())]
    DATA.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main(*sys.argv[1:])
