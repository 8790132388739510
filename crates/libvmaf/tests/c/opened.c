/* SPDX-License-Identifier: MPL-2.0 */

/* Opens the library at run time, as encoders do, scores three pairs, and closes it; three times. Prints the scores. */

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <libvmaf.h>

static void *library;

/* The function, or null, so that the program ends with a signal. */
#define FUNCTION(name) ((__typeof__(&name))dlsym(library, #name))

static int score(void)
{
	VmafConfiguration cfg = { .log_level = VMAF_LOG_LEVEL_NONE, .n_threads = 2 };
	VmafModelConfig model_cfg = { .name = "vmaf" };
	VmafContext *vmaf;
	VmafModel *model;
	double value = 0;
	int code = FUNCTION(vmaf_init)(&vmaf, cfg);
	code |= FUNCTION(vmaf_model_load)(&model, &model_cfg, "vmaf_v0.6.1");
	code |= FUNCTION(vmaf_use_features_from_model)(vmaf, model);
	for (unsigned n = 0; n < 3; n++) {
		VmafPicture pair[2];
		for (int side = 0; side < 2; side++) {
			code |= FUNCTION(vmaf_picture_alloc)(&pair[side], VMAF_PIX_FMT_YUV420P, 8, 128, 96);
			for (unsigned y = 0; y < 96; y++)
				for (unsigned x = 0; x < 128; x++) {
					unsigned v = (x * 7 + y * 5 + n * 30) % 256;
					((uint8_t *)pair[side].data[0])[y * pair[side].stride[0] + x] = side ? v & 0xf0 : v;
				}
		}
		code |= FUNCTION(vmaf_read_pictures)(vmaf, &pair[0], &pair[1], n);
	}
	code |= FUNCTION(vmaf_read_pictures)(vmaf, NULL, NULL, 0);
	code |= FUNCTION(vmaf_score_pooled)(vmaf, model, VMAF_POOL_METHOD_MEAN, &value, 0, 2);
	FUNCTION(vmaf_model_destroy)(model);
	code |= FUNCTION(vmaf_close)(vmaf);
	printf("%d %.17g\n", code, value);
	return code;
}

int main(void)
{
	for (int i = 0; i < 3; i++) {
		library = dlopen("libvmaf.so.3", RTLD_NOW | RTLD_LOCAL);
		if (!library) {
			fprintf(stderr, "%s\n", dlerror());
			return 1;
		}
		if (score() || dlclose(library))
			return 1;
	}
	return 0;
}
