/* SPDX-License-Identifier: MPL-2.0 */

/*
 * A client of the public interface that hands pictures over as fast as it can, and prints how long that took. It runs on any
 * libvmaf.so.3, chosen by LD_LIBRARY_PATH.
 *
 *   speed [ITEM...]
 *
 * Items: pairs=N (1000), threads=N of the library (0), fillers=N threads that copy frames into pictures (4), pool=N pictures
 * of a pool (16), pool=0 for vmaf_picture_alloc, size=WxH (1920x1080), bits=N (8), model=NAME (vmaf_v0.6.1), gpumask=N (0),
 * feature=NAME in addition to the model; cuda=device, cuda=pinned or cuda=host for the functions of libvmaf_cuda.h, with pictures
 * that libvmaf's CUDA code has in the GPU's memory (fillers=1), in page-locked memory, or that the functions above make.
 *
 * It prints: pairs; pairs per second, from the first pair to the pooled score, and of the last three quarters alone;
 * milliseconds from vmaf_init to the score of the first pair, in the first and in the second context of the process, which have
 * three pairs; and the pooled score with 17 digits.
 */

#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <libvmaf.h>

enum { FRAMES = 16, MOST_FILLERS = 64 };

static struct {
	unsigned pairs, threads, fillers, pool, w, h, bits;
	unsigned long gpumask;
	const char *model, *feature, *cuda;
} args = { 1000, 0, 4, 16, 1920, 1080, 8, 0, "vmaf_v0.6.1", NULL, NULL };

/* FRAMES pairs of whole pictures in 4:2:0, which take turns. */
static uint8_t *frames[FRAMES][2];

static void check(int code, const char *what)
{
	if (code) {
		fprintf(stderr, "speed: %s: %d\n", what, code);
		exit(1);
	}
}

/* Of libvmaf_cuda.h, and of CUDA's driver. */
struct cuda_configuration {
	void *context;
};

struct cuda_pictures {
	unsigned w, h, bpc, pix_fmt, method;
};

struct copy {
	size_t from_x, from_y;
	unsigned from_kind;
	const void *from_host;
	uintptr_t from_device;
	void *from_array;
	size_t from_pitch, to_x, to_y;
	unsigned to_kind;
	void *to_host;
	uintptr_t to_device;
	void *to_array;
	size_t to_pitch, width, height;
};

enum { HOST = 1, DEVICE = 2, METHOD_DEVICE = 1, METHOD_HOST_PINNED = 3 };

static struct {
	int (*state_init)(void **, struct cuda_configuration);
	int (*import_state)(VmafContext *, void *);
	int (*preallocate)(VmafContext *, struct cuda_pictures);
	int (*fetch)(VmafContext *, VmafPicture *);
	int (*init)(unsigned);
	int (*retain)(void **, int);
	int (*set_current)(void *);
	int (*lock)(void *, size_t, unsigned);
	int (*copy)(const struct copy *);
	void *context;
	int on_device, has_pictures;
} cuda;

static void *function(void *library, const char *name)
{
	void *found = dlsym(library, name);
	check(!found, name);
	return found;
}

static void open_cuda(void)
{
	cuda.on_device = !strcmp(args.cuda, "device");
	cuda.has_pictures = cuda.on_device || !strcmp(args.cuda, "pinned");
	*(void **)&cuda.state_init = function(RTLD_DEFAULT, "vmaf_cuda_state_init");
	*(void **)&cuda.import_state = function(RTLD_DEFAULT, "vmaf_cuda_import_state");
	*(void **)&cuda.preallocate = function(RTLD_DEFAULT, "vmaf_cuda_preallocate_pictures");
	*(void **)&cuda.fetch = function(RTLD_DEFAULT, "vmaf_cuda_fetch_preallocated_picture");
	void *driver = dlopen("libcuda.so.1", RTLD_NOW);
	check(!driver, "libcuda.so.1");
	*(void **)&cuda.init = function(driver, "cuInit");
	*(void **)&cuda.retain = function(driver, "cuDevicePrimaryCtxRetain");
	*(void **)&cuda.set_current = function(driver, "cuCtxSetCurrent");
	*(void **)&cuda.lock = function(driver, "cuMemHostRegister_v2");
	*(void **)&cuda.copy = function(driver, "cuMemcpy2D_v2");
	check(cuda.init(0), "cuInit");
	check(cuda.retain(&cuda.context, 0), "cuDevicePrimaryCtxRetain");
	check(cuda.set_current(cuda.context), "cuCtxSetCurrent");
}

static void use_cuda(VmafContext *vmaf)
{
	void *state;
	check(cuda.state_init(&state, (struct cuda_configuration){ NULL }), "cuda_state_init");
	check(cuda.import_state(vmaf, state), "cuda_import_state");
	struct cuda_pictures pictures = { args.w, args.h, args.bits, VMAF_PIX_FMT_YUV420P,
					  cuda.on_device ? METHOD_DEVICE : METHOD_HOST_PINNED };
	if (cuda.has_pictures)
		check(cuda.preallocate(vmaf, pictures), "cuda_preallocate_pictures");
}

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

static unsigned plane_width(unsigned plane)
{
	return plane ? args.w / 2 : args.w;
}

static unsigned plane_height(unsigned plane)
{
	return plane ? args.h / 2 : args.h;
}

/* A moving pattern with noise; the other side is coarser. */
static void draw(void)
{
	unsigned size = args.bits > 8 ? 2 : 1;
	for (unsigned frame = 0; frame < FRAMES; frame++)
		for (int side = 0; side < 2; side++) {
			uint8_t *to = malloc((size_t)args.w * args.h * 3 / 2 * size);
			if (!to)
				exit(1);
			frames[frame][side] = to;
			if (cuda.on_device)
				check(cuda.lock(to, (size_t)args.w * args.h * 3 / 2 * size, 0), "cuMemHostRegister");
			uint32_t state = frame + 1;
			for (unsigned plane = 0; plane < 3; plane++)
				for (unsigned y = 0; y < plane_height(plane); y++)
					for (unsigned x = 0; x < plane_width(plane); x++) {
						state = state * 1103515245u + 12345u;
						unsigned v = (x + 3 * frame) * 3 + y * 2 +
							     ((x + frame) / 16 * 37 + y / 16 * 53) % 97;
						v = v / 4 % 200 + (state >> 16) % 7;
						if (side)
							v = v / 9 * 9 + frame % 3;
						v <<= args.bits - 8;
						if (size == 2)
							*(uint16_t *)to = (uint16_t)v;
						else
							*to = (uint8_t)v;
						to += size;
					}
		}
}

struct pair {
	VmafPicture pictures[2];
	int is_filled;
};

struct feed {
	VmafContext *vmaf;
	struct pair *pairs; /* that are filled or handed over, in a ring of so many as there are fillers */
	unsigned count, next, taken;
	pthread_mutex_t mutex;
	pthread_cond_t changed;
};

static void fill(VmafPicture *picture, const uint8_t *from)
{
	size_t size = args.bits > 8 ? 2 : 1;
	if (cuda.on_device) {
		/* Luma alone, which is what its extractors read. */
		struct copy copy = { .from_kind = HOST, .from_host = from, .from_pitch = args.w * size,
				     .to_kind = DEVICE, .to_device = (uintptr_t)picture->data[0],
				     .to_pitch = picture->stride[0], .width = args.w * size, .height = args.h };
		check(cuda.copy(&copy), "cuMemcpy2D");
		return;
	}
	for (unsigned plane = 0; plane < 3; plane++)
		for (unsigned y = 0; y < plane_height(plane); y++) {
			size_t row = plane_width(plane) * size;
			memcpy((uint8_t *)picture->data[plane] + y * picture->stride[plane], from, row);
			from += row;
		}
}

/* Fills every pair whose turn it is. Pictures are fetched in order, as pairs that are handed over first must have theirs. */
static void *filler(void *data)
{
	struct feed *feed = data;
	if (cuda.context)
		check(cuda.set_current(cuda.context), "cuCtxSetCurrent");
	for (;;) {
		pthread_mutex_lock(&feed->mutex);
		while (feed->next < feed->count && feed->next >= feed->taken + args.fillers)
			pthread_cond_wait(&feed->changed, &feed->mutex);
		if (feed->next >= feed->count) {
			pthread_mutex_unlock(&feed->mutex);
			return NULL;
		}
		unsigned n = feed->next++;
		struct pair *pair = &feed->pairs[n % args.fillers];
		for (int side = 0; side < 2; side++)
			if (cuda.has_pictures)
				check(cuda.fetch(feed->vmaf, &pair->pictures[side]), "cuda_fetch");
			else if (args.pool)
				check(vmaf_fetch_preallocated_picture(feed->vmaf, &pair->pictures[side]), "fetch");
		pthread_mutex_unlock(&feed->mutex);
		for (int side = 0; side < 2; side++) {
			if (!args.pool && !cuda.has_pictures)
				check(vmaf_picture_alloc(&pair->pictures[side], VMAF_PIX_FMT_YUV420P, args.bits, args.w,
							 args.h), "alloc");
			fill(&pair->pictures[side], frames[n % FRAMES][side]);
		}
		pthread_mutex_lock(&feed->mutex);
		pair->is_filled = 1;
		pthread_cond_broadcast(&feed->changed);
		pthread_mutex_unlock(&feed->mutex);
	}
}

/* Hands pairs over in order. Returns the time at which a quarter of them had been. */
static double hand_over(VmafContext *vmaf, unsigned count)
{
	double quarter = now();
	struct pair pairs[MOST_FILLERS] = { 0 };
	struct feed feed = { .vmaf = vmaf, .pairs = pairs, .count = count };
	pthread_mutex_init(&feed.mutex, NULL);
	pthread_cond_init(&feed.changed, NULL);
	pthread_t threads[MOST_FILLERS];
	for (unsigned i = 0; i < args.fillers; i++)
		check(pthread_create(&threads[i], NULL, filler, &feed), "pthread_create");
	for (unsigned n = 0; n < count; n++) {
		struct pair *pair = &pairs[n % args.fillers];
		pthread_mutex_lock(&feed.mutex);
		while (!pair->is_filled)
			pthread_cond_wait(&feed.changed, &feed.mutex);
		pthread_mutex_unlock(&feed.mutex);
		check(vmaf_read_pictures(vmaf, &pair->pictures[0], &pair->pictures[1], n), "read");
		if (n + 1 == count / 4)
			quarter = now();
		pthread_mutex_lock(&feed.mutex);
		pair->is_filled = 0;
		feed.taken++;
		pthread_cond_broadcast(&feed.changed);
		pthread_mutex_unlock(&feed.mutex);
	}
	for (unsigned i = 0; i < args.fillers; i++)
		pthread_join(threads[i], NULL);
	check(vmaf_read_pictures(vmaf, NULL, NULL, 0), "flush");
	return quarter;
}

static VmafContext *context(VmafModel *model)
{
	VmafContext *vmaf;
	VmafConfiguration cfg = { .log_level = VMAF_LOG_LEVEL_INFO, .n_threads = args.threads, .gpumask = args.gpumask };
	check(vmaf_init(&vmaf, cfg), "init");
	if (args.cuda)
		use_cuda(vmaf);
	check(vmaf_use_features_from_model(vmaf, model), "use_features_from_model");
	if (args.feature)
		check(vmaf_use_feature(vmaf, args.feature, NULL), "use_feature");
	if (args.pool && !cuda.has_pictures) {
		VmafPictureConfiguration pool = {
			.pic_params = { args.w, args.h, args.bits, VMAF_PIX_FMT_YUV420P }, .pic_cnt = args.pool,
		};
		check(vmaf_preallocate_pictures(vmaf, pool), "preallocate");
	}
	return vmaf;
}

static double score_of_first(VmafModel *model)
{
	double score, begun = now();
	VmafContext *vmaf = context(model);
	hand_over(vmaf, 3);
	check(vmaf_score_at_index(vmaf, model, &score, 0), "score");
	double ended = now();
	check(vmaf_close(vmaf), "close");
	return (ended - begun) * 1e3;
}

int main(int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		sscanf(argv[i], "pairs=%u", &args.pairs);
		sscanf(argv[i], "threads=%u", &args.threads);
		sscanf(argv[i], "fillers=%u", &args.fillers);
		sscanf(argv[i], "pool=%u", &args.pool);
		sscanf(argv[i], "size=%ux%u", &args.w, &args.h);
		sscanf(argv[i], "bits=%u", &args.bits);
		sscanf(argv[i], "gpumask=%lu", &args.gpumask);
		if (!strncmp(argv[i], "model=", 6))
			args.model = argv[i] + 6;
		if (!strncmp(argv[i], "feature=", 8))
			args.feature = argv[i] + 8;
		if (!strncmp(argv[i], "cuda=", 5))
			args.cuda = argv[i] + 5;
	}
	/* Pictures of all pairs that are being filled, and the latest reference pictures, which libvmaf keeps. */
	if (!args.fillers || args.fillers > MOST_FILLERS || (args.pool && args.pool < 2 * args.fillers + 4) || !args.pairs)
		return 2;
	if (args.cuda)
		open_cuda();
	draw();
	VmafModel *model;
	VmafModelConfig cfg = { .name = "vmaf" };
	check(vmaf_model_load(&model, &cfg, args.model), "model");

	double first = score_of_first(model), second = score_of_first(model);
	VmafContext *vmaf = context(model);
	double begun = now(), score;
	double quarter = hand_over(vmaf, args.pairs);
	check(vmaf_score_pooled(vmaf, model, VMAF_POOL_METHOD_MEAN, &score, 0, args.pairs - 1), "pool");
	double ended = now();
	check(vmaf_close(vmaf), "close");
	vmaf_model_destroy(model);
	printf("pairs %u, per second %.1f and %.1f, first score ms %.1f and %.1f, score %.17g\n", args.pairs,
	       args.pairs / (ended - begun), (args.pairs - args.pairs / 4) / (ended - quarter), first, second, score);
	return 0;
}
