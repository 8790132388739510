/* SPDX-License-Identifier: MPL-2.0 */

/*
 * A client of the public interface that prints every score with 17 digits and every code, for comparison of two libraries.
 *
 *   client FORMAT BITS WIDTH HEIGHT FRAMES ITEM...     scores pictures of its own making
 *   client --write FILE FORMAT BITS WIDTH HEIGHT FRAMES SIDE   writes them, as Y4M if the name says so; SIDE 0 is the reference, 1 the other
 *
 * FORMAT is 420, 422, 444 or 400. Items: model=NAME, flags=N (of the models that follow), collection=NAME,
 * feature=NAME[:OPTION=VALUE...], overload=EXTRACTOR:OPTION=VALUE (of the model before), suffix=TEXT (names with it are
 * looked up, too), threads=N, subsample=N, start=N (first index), order=swap (0, 2, 1, 4, 3, ...), order=twice (0, 0, 1, 1,
 * ...), order=window (shuffled within eight), late=N (the features are used from picture N on), level=N (of the log),
 * import=NAME@INDEX (a score, before all pictures), after=NAME@INDEX (a score, before the flush), ask=NAME (the score of the
 * last pair and of its neighbours, after each pair).
 */

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <libvmaf.h>

enum { MOST = 64 };

static const char *const names[] = {
	"VMAF_integer_feature_adm2_score", "VMAF_integer_feature_aim_score", "VMAF_integer_feature_adm3_score",
	"integer_adm2", "integer_aim", "integer_adm3",
	"integer_adm_scale0", "integer_adm_scale1", "integer_adm_scale2", "integer_adm_scale3",
	"VMAF_feature_adm2_score", "VMAF_feature_aim_score", "VMAF_feature_adm3_score",
	"VMAF_feature_adm_scale0_score", "VMAF_feature_adm_scale1_score",
	"VMAF_feature_adm_scale2_score", "VMAF_feature_adm_scale3_score",
	"adm2", "aim", "adm3", "adm_scale0", "adm_scale1", "adm_scale2", "adm_scale3",
	"adm", "adm_num", "adm_den", "adm_num_scale0", "adm_den_scale0", "adm_num_scale1", "adm_den_scale1",
	"adm_num_scale2", "adm_den_scale2", "adm_num_scale3", "adm_den_scale3",
	"VMAF_integer_feature_vif_scale0_score", "VMAF_integer_feature_vif_scale1_score",
	"VMAF_integer_feature_vif_scale2_score", "VMAF_integer_feature_vif_scale3_score",
	"integer_vif_scale0", "integer_vif_scale1", "integer_vif_scale2", "integer_vif_scale3",
	"VMAF_feature_vif_scale0_score", "VMAF_feature_vif_scale1_score", "VMAF_feature_vif_scale2_score",
	"VMAF_feature_vif_scale3_score", "vif_scale0", "vif_scale1", "vif_scale2", "vif_scale3", "vif", "vif_num", "vif_den",
	"vif_num_scale0", "vif_den_scale0", "vif_num_scale1", "vif_den_scale1", "vif_num_scale2", "vif_den_scale2",
	"vif_num_scale3", "vif_den_scale3",
	"VMAF_integer_feature_motion_sad_score", "VMAF_integer_feature_motion_score",
	"VMAF_integer_feature_motion2_score", "VMAF_integer_feature_motion3_score",
	"integer_motion2", "integer_motion3",
	"integer_adm", "integer_adm_num", "integer_adm_den", "integer_adm_num_scale0", "integer_adm_den_scale0",
	"integer_adm_num_scale1", "integer_adm_den_scale1", "integer_adm_num_scale2", "integer_adm_den_scale2",
	"integer_adm_num_scale3", "integer_adm_den_scale3", "integer_vif", "integer_vif_num", "integer_vif_den",
	"integer_vif_num_scale0", "integer_vif_den_scale0", "integer_vif_num_scale1", "integer_vif_den_scale1",
	"integer_vif_num_scale2", "integer_vif_den_scale2", "integer_vif_num_scale3", "integer_vif_den_scale3",
	"psnr_y", "psnr_cb", "psnr_cr", "mse_y", "mse_cb", "mse_cr",
	"psnr_hvs_y", "psnr_hvs_cb", "psnr_hvs_cr", "psnr_hvs", "ciede2000",
	"float_ssim", "float_ssim_l", "float_ssim_c", "float_ssim_s",
	"float_ms_ssim", "float_ms_ssim_l_scale0", "float_ms_ssim_c_scale2", "float_ms_ssim_s_scale4",
	"Cambi_feature_cambi_score", "cambi", "cambi_source", "cambi_full_reference",
	"Speed_chroma_feature_speed_chroma_u_score", "Speed_chroma_feature_speed_chroma_v_score",
	"Speed_chroma_feature_speed_chroma_uv_score", "speed_chroma_u", "speed_chroma_v", "speed_chroma_uv",
	"float_psnr", "float_ansnr", "float_anpsnr",
	"float_moment_ref1st", "float_moment_dis1st", "float_moment_ref2nd", "float_moment_dis2nd",
	"VMAF_feature_motion_score", "VMAF_feature_motion2_score", "VMAF_feature_motion3_score",
	"Speed_temporal_feature_speed_temporal_score",
};

static uint32_t state;

static uint32_t noise(void)
{
	state = state * 1103515245u + 12345u;
	return state >> 16;
}

/* One sample of a moving pattern with noise; the other side is coarser, blurred and shifted a little in brightness. */
static unsigned sample(unsigned x, unsigned y, unsigned frame, unsigned plane, unsigned bits, int side)
{
	unsigned v = (x + 3 * frame) * 5 + y * 3 + ((x + frame) / 16 * 37 + y / 16 * 53) % 97 + plane * 40;
	unsigned depth = bits - 8;
	v = (v % 256) << depth;
	unsigned n = noise() % (5u << depth);
	if (side)
		v = v / (12u << depth) * (12u << depth) + n / 2 + (frame % 3 << depth);
	else
		v += n;
	unsigned peak = (1u << bits) - 1;
	return v > peak ? peak : v;
}

static void fill(uint8_t *data, ptrdiff_t stride, unsigned w, unsigned h, unsigned frame, unsigned plane,
		 unsigned bits, int side)
{
	state = frame * 7919u + plane * 104729u + 1;
	for (unsigned y = 0; y < h; y++)
		for (unsigned x = 0; x < w; x++) {
			unsigned v = sample(x, y, frame, plane, bits, side);
			if (bits > 8)
				((uint16_t *)(data + y * stride))[x] = (uint16_t)v;
			else
				data[y * stride + x] = (uint8_t)v;
		}
}

static enum VmafPixelFormat format_of(const char *text)
{
	return !strcmp(text, "420")   ? VMAF_PIX_FMT_YUV420P
	       : !strcmp(text, "422") ? VMAF_PIX_FMT_YUV422P
	       : !strcmp(text, "444") ? VMAF_PIX_FMT_YUV444P
				      : VMAF_PIX_FMT_YUV400P;
}

static int write_y4m(char **argv)
{
	FILE *file = fopen(argv[2], "wb");
	const char *format = argv[3];
	unsigned bits = atoi(argv[4]), w = atoi(argv[5]), h = atoi(argv[6]), frames = atoi(argv[7]);
	int side = atoi(argv[8]);
	if (!file)
		return 1;
	int is_y4m = !!strstr(argv[2], ".y4m");
	if (is_y4m) {
		fprintf(file, "YUV4MPEG2 W%u H%u F25:1 Ip A1:1 C%s", w, h, format);
		if (bits > 8)
			fprintf(file, "p%u", bits);
		else if (!strcmp(format, "420"))
			fprintf(file, "jpeg");
		fprintf(file, "\n");
	}
	for (unsigned frame = 0; frame < frames; frame++) {
		if (is_y4m)
			fprintf(file, "FRAME\n");
		for (unsigned plane = 0; plane < 3; plane++) {
			unsigned pw = plane && strcmp(format, "444") ? (w + 1) / 2 : w;
			unsigned ph = plane && !strcmp(format, "420") ? (h + 1) / 2 : h;
			size_t stride = pw * (bits > 8 ? 2 : 1);
			uint8_t *data = malloc(stride * ph);
			if (!data)
				return 1;
			fill(data, stride, pw, ph, frame, plane, bits, side);
			fwrite(data, 1, stride * ph, file);
			free(data);
		}
	}
	return fclose(file) != 0;
}

/* Reads "NAME:OPTION=VALUE:..." and leaves the name. */
static VmafFeatureDictionary *options_of(char *text)
{
	VmafFeatureDictionary *dict = NULL;
	char *option = strchr(text, ':');
	while (option) {
		*option++ = 0;
		char *next = strchr(option, ':');
		if (next)
			*next = 0;
		char *value = strchr(option, '=');
		*value++ = 0;
		printf("option %s=%s: %d\n", option, value, vmaf_feature_dictionary_set(&dict, option, value));
		option = next;
	}
	return dict;
}

static void import(VmafContext *vmaf, const char *item)
{
	char name[128];
	unsigned index;
	if (sscanf(item, "%127[^@]@%u", name, &index) == 2)
		printf("import %s: %d\n", item, vmaf_import_feature_score(vmaf, name, 0.5, index));
}

static void ask(VmafContext *vmaf, const char *name, unsigned index)
{
	for (unsigned i = index - 1; i != index + 2; i++) {
		double score = 0;
		int code = vmaf_feature_score_at_index(vmaf, name, &score, i);
		printf("ask %s at %u: %d %.17g\n", name, i, code, score);
	}
}

static void print_scores(VmafContext *vmaf, const char *name, unsigned first, unsigned last)
{
	double score;
	for (unsigned i = first; i <= last; i++)
		if (!vmaf_feature_score_at_index(vmaf, name, &score, i))
			printf("%s %u %.17g\n", name, i, score);
	for (int method = VMAF_POOL_METHOD_MIN; method <= VMAF_POOL_METHOD_HARMONIC_MEAN; method++)
		if (!vmaf_feature_score_pooled(vmaf, name, method, &score, first, last))
			printf("%s pool %d %.17g\n", name, method, score);
}

int main(int argc, char **argv)
{
	if (argc > 8 && !strcmp(argv[1], "--write"))
		return write_y4m(argv);
	if (argc < 6)
		return 2;
	enum VmafPixelFormat format = format_of(argv[1]);
	unsigned bits = atoi(argv[2]), w = atoi(argv[3]), h = atoi(argv[4]), frames = atoi(argv[5]);
	VmafConfiguration cfg = { .log_level = VMAF_LOG_LEVEL_NONE };
	unsigned start = 0, late = 0;
	int swaps = 0, twice = 0, windows = 0;
	for (int i = 6; i < argc; i++) {
		sscanf(argv[i], "threads=%u", &cfg.n_threads);
		sscanf(argv[i], "subsample=%u", &cfg.n_subsample);
		sscanf(argv[i], "start=%u", &start);
		sscanf(argv[i], "late=%u", &late);
		int level;
		if (sscanf(argv[i], "level=%d", &level) == 1)
			cfg.log_level = level;
		swaps |= !strcmp(argv[i], "order=swap");
		twice |= !strcmp(argv[i], "order=twice");
		windows |= !strcmp(argv[i], "order=window");
	}
	VmafContext *vmaf;
	if (vmaf_init(&vmaf, cfg))
		return 3;

	VmafModel *models[MOST];
	VmafModelCollection *collections[MOST];
	const char *suffixes[MOST] = { "" };
	unsigned n_models = 0, n_collections = 0, n_suffixes = 1;
	static char labels[MOST][32];
	VmafModelConfig model_cfg = { 0 };
	for (int i = 6; i < argc; i++) {
		char *value = strchr(argv[i], '=');
		if (!value)
			return 2;
		value++;
		unsigned long flags;
		if (sscanf(argv[i], "flags=%lu", &flags) == 1)
			model_cfg.flags = flags;
		if (!strncmp(argv[i], "suffix=", 7))
			suffixes[n_suffixes++] = value;
		int is_model = !strncmp(argv[i], "model=", 6), is_collection = !strncmp(argv[i], "collection=", 11);
		if (is_model || is_collection) {
			snprintf(labels[n_models], sizeof(labels[0]), "label%u", n_models);
			model_cfg.name = labels[n_models];
			int code = is_model ? vmaf_model_load(&models[n_models], &model_cfg, value)
					    : vmaf_model_collection_load(&models[n_models], &collections[n_collections],
									 &model_cfg, value);
			printf("load %s: %d\n", value, code);
			if (!code) {
				n_models++;
				n_collections += is_collection;
			}
		}
		if (!strncmp(argv[i], "overload=", 9)) {
			VmafFeatureDictionary *dict = options_of(value);
			printf("overload %s: %d\n", value, vmaf_model_feature_overload(models[n_models - 1], value, dict));
		}
	}
	for (int i = 6; i < argc; i++)
		if (!strncmp(argv[i], "import=", 7))
			import(vmaf, argv[i] + 7);
	for (unsigned n = 0; n < frames; n++) {
		if (n == late) {
			for (unsigned i = 0; i < n_models; i++)
				printf("use model %u: %d\n", i, vmaf_use_features_from_model(vmaf, models[i]));
			for (unsigned i = 0; i < n_collections; i++)
				printf("use collection %u: %d\n", i,
				       vmaf_use_features_from_model_collection(vmaf, collections[i]));
			for (int i = 6; i < argc; i++)
				if (!strncmp(argv[i], "feature=", 8)) {
					VmafFeatureDictionary *dict = options_of(argv[i] + 8);
					printf("use %s: %d\n", argv[i] + 8, vmaf_use_feature(vmaf, argv[i] + 8, dict));
				}
		}
		unsigned index = start + n;
		if (swaps && n > 0)
			index = n % 2 ? (n + 1 < frames ? index + 1 : index) : index - 1;
		if (twice)
			index = start + n / 2;
		if (windows)
			index = start + n / 8 * 8 + (unsigned[]){ 0, 3, 5, 1, 2, 7, 4, 6 }[n % 8];
		VmafPicture pair[2];
		for (int side = 0; side < 2; side++) {
			if (vmaf_picture_alloc(&pair[side], format, bits, w, h))
				return 4;
			for (unsigned p = 0; p < 3; p++)
				if (pair[side].data[p])
					fill(pair[side].data[p], pair[side].stride[p], pair[side].w[p], pair[side].h[p],
					     index, p, bits, side);
		}
		int code = vmaf_read_pictures(vmaf, &pair[0], &pair[1], index);
		printf("read %u: %d%s\n", index, code, pair[0].ref ? " kept" : "");
		if (pair[0].ref)
			printf("unref %d %d, again %d\n", vmaf_picture_unref(&pair[0]), vmaf_picture_unref(&pair[1]),
			       vmaf_picture_unref(&pair[0]));
		for (int i = 6; i < argc; i++)
			if (!strncmp(argv[i], "ask=", 4))
				ask(vmaf, argv[i] + 4, index);
	}
	for (int i = 6; i < argc; i++)
		if (!strncmp(argv[i], "after=", 6))
			import(vmaf, argv[i] + 6);
	printf("flush: %d\n", vmaf_read_pictures(vmaf, NULL, NULL, 0));
	printf("flush again: %d\n", vmaf_read_pictures(vmaf, NULL, NULL, 0));

	unsigned last = start + frames - 1;
	for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		for (unsigned s = 0; s < n_suffixes; s++) {
			char name[512];
			snprintf(name, sizeof(name), "%s%s", names[i], suffixes[s]);
			print_scores(vmaf, name, start, last);
		}
	double score;
	for (unsigned i = 0; i < n_models; i++) {
		for (unsigned index = start; index <= last + 1; index++) {
			int code = vmaf_score_at_index(vmaf, models[i], &score, index);
			printf("model %u at %u: %d", i, index, code);
			printf(code ? "\n" : " %.17g\n", score);
		}
		for (int method = VMAF_POOL_METHOD_UNKNOWN; method <= VMAF_POOL_METHOD_NB; method++) {
			int code = vmaf_score_pooled(vmaf, models[i], method, &score, start, last);
			printf("model %u pool %d: %d", i, method, code);
			printf(code ? "\n" : " %.17g\n", score);
		}
	}
	for (unsigned i = 0; i < n_collections; i++)
		for (int again = 0; again < 2; again++) {
			VmafModelCollectionScore s = { 0 };
			int code = vmaf_score_pooled_model_collection(vmaf, collections[i], VMAF_POOL_METHOD_MEAN, &s,
								      start, last);
			printf("collection %u: %d", i, code);
			if (!code)
				printf(" %d %.17g %.17g %.17g %.17g", s.type, s.bootstrap.bagging_score,
				       s.bootstrap.stddev, s.bootstrap.ci.p95.lo, s.bootstrap.ci.p95.hi);
			printf("\n");
		}
	for (unsigned i = 0; i < n_models; i++)
		vmaf_model_destroy(models[i]);
	for (unsigned i = 0; i < n_collections; i++)
		vmaf_model_collection_destroy(collections[i]);
	printf("close: %d\n", vmaf_close(vmaf));
	return 0;
}
