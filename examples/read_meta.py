#!/usr/bin/env python3
# SPDX-License-Identifier: MPL-2.0
"""Reads scores in Python: from the messages on the bus, and from the buffers that leave the element.

    GST_PLUGIN_PATH=target/plugins python3 examples/read_meta.py [original.mp4 encoded.mp4]

Without files it scores an encoding of a test picture. Ctrl-C and SIGTERM end it with the scores so far, and with the exit
code 130 or 143; the second of them ends it at once. It needs PyGObject (Debian: python3-gi, gir1.2-gstreamer-1.0).
"""
import signal
import sys

import gi

gi.require_version("Gst", "1.0")
from gi.repository import GLib, Gst  # noqa: E402

# The queue before ref_sink holds what encoder and decoder have not given back yet, so it is bounded in time only. With one
# thread the decoder gives back each frame at once: videotestsrc waits for the first one when x264enc has it negotiate anew.
TEST = """videotestsrc num-buffers=50 pattern=ball ! video/x-raw,format=I420,width=320,height=180,framerate=25/1
  ! tee name=film
  film. ! queue max-size-buffers=0 max-size-bytes=0 max-size-time=3000000000 ! score.ref_sink
  film. ! queue ! x264enc bitrate=60 tune=zerolatency ! avdec_h264 max-threads=1 ! score.dist_sink"""
FILES = """filesrc name=ref ! decodebin ! queue ! score.ref_sink
  filesrc name=dist ! decodebin ! queue ! score.dist_sink"""


def say(*words):
    """Prints a line as a whole: messages and buffers come in two threads."""
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def seconds(time):
    return f"{time / Gst.SECOND:8.3f} s"


def element_message(_bus, message):
    """Prints a message of the element: scores or an event."""
    s = message.get_structure()
    if s.get_name() == "VMAF" and s.get_string("type") == "frame":
        # Nested structures are structures again.
        models = s.get_value("models")
        scores = {models.nth_field_name(i): models.get_value(models.nth_field_name(i))
                  for i in range(models.n_fields())}
        say("message", seconds(s.get_value("running-time")), s.get_value("index"), scores)
    elif s.get_name() == "VMAF":
        say(f"{s.get_string('type')}: {s.get_string('label')}, {s.get_value('frames')} frames,"
              f" {s.get_string('pool-method')} {s.get_value('score'):.2f}, lowest {s.get_value('min'):.2f}")
    elif s.get_name() == "hipvmaf-event":
        count = s.get_value("count") if s.has_field("count") else ""
        say("event", s.get_string("label"), s.get_string("event"), s.get_string("state"), count)


def buffer(_pad, info):
    """Prints the score metadata of a buffer."""
    meta = info.get_buffer().get_custom_meta("HipVmafScoreMeta")
    if meta is not None:
        s = meta.get_structure()
        scores = s.get_value("scores")
        for i in range(scores.n_fields()):
            pad = scores.get_value(scores.nth_field_name(i))
            say("buffer ", seconds(s.get_value("running-time")), s.get_value("index"),
                pad.get_string("label"), pad.get_string("state"), pad.get_value("score"))
    return Gst.PadProbeReturn.OK


def end(source, _info):
    """Ends the stream at an input of the element, between two frames."""
    source.get_peer().send_event(Gst.Event.new_eos())
    return Gst.PadProbeReturn.REMOVE


def main(files):
    Gst.init(None)
    inputs = FILES if files else TEST
    pipeline = Gst.parse_launch(f"{inputs} hipvmaf name=score frame-message=true ! fakesink name=sink")
    for name, path in zip(("ref", "dist"), files):
        pipeline.get_by_name(name).set_property("location", path)
    pipeline.get_by_name("sink").get_static_pad("sink").add_probe(Gst.PadProbeType.BUFFER, buffer)
    loop, failed, signals = GLib.MainLoop(), [], []

    def error(_bus, message):
        failed.append(message.parse_error()[0].message)
        loop.quit()

    def interrupted(number):
        signals.append(number)
        for pad in pipeline.get_by_name("score").sinkpads:
            pad.get_peer().add_probe(Gst.PadProbeType.IDLE, end)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        return GLib.SOURCE_CONTINUE

    bus = pipeline.get_bus()
    bus.add_signal_watch()
    bus.connect("message::element", element_message)
    bus.connect("message::error", error)
    bus.connect("message::eos", lambda *_: loop.quit())
    for number in (signal.SIGINT, signal.SIGTERM):
        GLib.unix_signal_add(GLib.PRIORITY_HIGH, number, interrupted, number)
    pipeline.set_state(Gst.State.PLAYING)
    loop.run()
    pipeline.set_state(Gst.State.NULL)
    if failed:
        return "".join(f"error: {text}" for text in failed)
    return 128 + signals[0] if signals else 0


if __name__ == "__main__":
    if len(sys.argv) not in (1, 3):
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1:]))
