// SPDX-License-Identifier: MPL-2.0
//
// Uses the element from C: scores arrive as messages on the bus.
//
//     cc embed.c -o embed $(pkg-config --cflags --libs gstreamer-1.0)
//     GST_PLUGIN_PATH=target/plugins ./embed original.mp4 encoded.mp4
#include <gst/gst.h>

// Prints the score of a frame, or with `type=pooled` that of all frames.
static void print_scores(const GstStructure *message) {
  const char *type = gst_structure_get_string(message, "type");
  gint index = 0;
  gdouble score = 0, lowest = 0;
  gst_structure_get_double(message, "score", &score);
  if (g_strcmp0(type, "frame") == 0) {
    gst_structure_get_int(message, "index", &index);
    g_print("%6d %.4f\n", index, score);
  } else if (g_strcmp0(type, "pooled") == 0) {
    gst_structure_get_double(message, "min", &lowest);
    g_print("%6s %.6f, lowest %.6f\n", gst_structure_get_string(message, "pool-method"), score, lowest);
  }
}

// Handles a message. Returns TRUE if it was the last. Prints an error and sets `failed`.
static gboolean take(GstMessage *message, gboolean *failed) {
  switch (GST_MESSAGE_TYPE(message)) {
    case GST_MESSAGE_ELEMENT:
      if (gst_message_has_name(message, "VMAF")) print_scores(gst_message_get_structure(message));
      return FALSE;
    case GST_MESSAGE_ERROR: {
      GError *error = NULL;
      gst_message_parse_error(message, &error, NULL);
      g_printerr("error: %s\n", error->message);
      g_error_free(error);
      *failed = TRUE;
      return TRUE;
    }
    case GST_MESSAGE_EOS:
      return TRUE;
    default:
      return FALSE;
  }
}

static void set_location(GstElement *pipeline, const char *name, const char *path) {
  GstElement *source = gst_bin_get_by_name(GST_BIN(pipeline), name);
  g_object_set(source, "location", path, NULL);
  gst_object_unref(source);
}

int main(int argc, char **argv) {
  gst_init(&argc, &argv);
  if (argc != 3) {
    g_printerr("usage: %s ORIGINAL ENCODED\n", argv[0]);
    return 2;
  }
  GError *error = NULL;
  GstElement *pipeline = gst_parse_launch(
      "filesrc name=original ! decodebin ! score.ref_sink "
      "filesrc name=encoded ! decodebin ! score.dist_sink "
      "hipvmaf name=score frame-message=true scale-method=bicubic ! fakesink",
      &error);
  // An element that is missing leaves a pipeline and an error.
  if (error) {
    g_printerr("error: %s\n", error->message);
    g_clear_error(&error);
    gst_clear_object(&pipeline);
    return 1;
  }
  set_location(pipeline, "original", argv[1]);
  set_location(pipeline, "encoded", argv[2]);

  gboolean failed = FALSE, last = FALSE;
  GstBus *bus = gst_element_get_bus(pipeline);
  gst_element_set_state(pipeline, GST_STATE_PLAYING);
  while (!last) {
    GstMessage *message = gst_bus_timed_pop(bus, GST_CLOCK_TIME_NONE);
    last = take(message, &failed);
    gst_message_unref(message);
  }
  gst_element_set_state(pipeline, GST_STATE_NULL);
  gst_object_unref(bus);
  gst_object_unref(pipeline);
  return failed;
}
