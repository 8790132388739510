/* SPDX-License-Identifier: MPL-2.0 */

/*
 * Uses the library as its callers do, and prints codes and scores, for comparison of two libraries.
 *
 *   callers contexts THREADS CONTEXTS WIDTH HEIGHT   one pair per context, from several threads; with LIMITS=1 in the
 *                                                    environment, growth of memory, threads or descriptors is an error
 *   callers memory N_THREADS PAIRS POOL              pairs of 1080p as fast as they are copied, in pictures of a pool of
 *                                                    POOL, or in new ones; more than 40 pictures in memory is an error
 *   callers kept N_THREADS                           pictures after errors, released by another thread, last first; the
 *                                                    model is destroyed before the first pair
 *   callers imported                                 a model on scores of the caller's
 *   callers misuse                                   calls that libvmaf answers with an error
 */

#include <dirent.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include <libvmaf.h>

enum { KINDS = 16 };

static void expect(int holds, const char *text)
{
	if (holds)
		return;
	fprintf(stderr, "callers: not so: %s\n", text);
	exit(1);
}

/* A moving pattern; coarser on the distorted side. */
static void fill(VmafPicture *picture, unsigned frame, int side)
{
	for (unsigned y = 0; y < picture->h[0]; y++) {
		uint8_t *row = (uint8_t *)picture->data[0] + y * picture->stride[0];
		for (unsigned x = 0; x < picture->w[0]; x++) {
			unsigned v = (x * 7 + y * 5 + frame * 3 + x * y % 11) % 256;
			row[x] = (uint8_t)(side ? v / (8 + frame % KINDS) * (8 + frame % KINDS) : v);
		}
	}
}

static VmafPicture picture(unsigned w, unsigned h, unsigned frame, int side)
{
	VmafPicture made;
	expect(!vmaf_picture_alloc(&made, VMAF_PIX_FMT_YUV420P, 8, w, h), "a picture");
	fill(&made, frame, side);
	return made;
}

static VmafContext *context(unsigned n_threads, unsigned n_subsample)
{
	VmafConfiguration cfg = { .log_level = VMAF_LOG_LEVEL_NONE, .n_threads = n_threads, .n_subsample = n_subsample };
	VmafContext *made;
	expect(!vmaf_init(&made, cfg), "a context");
	return made;
}

static VmafModel *model(void)
{
	VmafModelConfig cfg = { .name = "vmaf" };
	VmafModel *loaded;
	expect(!vmaf_model_load(&loaded, &cfg, "vmaf_v0.6.1"), "a model");
	return loaded;
}

/* The number in a line of /proc/self/status. */
static long status(const char *name)
{
	char line[256];
	long value = -1;
	FILE *file = fopen("/proc/self/status", "r");
	expect(!!file, "/proc/self/status");
	while (fgets(line, sizeof(line), file))
		if (!strncmp(line, name, strlen(name)))
			value = atol(line + strlen(name));
	fclose(file);
	return value;
}

static long descriptors(void)
{
	long count = 0;
	DIR *dir = opendir("/proc/self/fd");
	expect(!!dir, "/proc/self/fd");
	while (readdir(dir))
		count++;
	closedir(dir);
	return count;
}

static double seconds(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec + now.tv_nsec / 1e9;
}

static double cpu_seconds(void)
{
	struct rusage use;
	getrusage(RUSAGE_SELF, &use);
	return use.ru_utime.tv_sec + use.ru_stime.tv_sec + (use.ru_utime.tv_usec + use.ru_stime.tv_usec) / 1e6;
}

/* As libaom does with each picture that it tunes for VMAF. */
struct job {
	unsigned contexts, w, h;
	double scores[KINDS];
};

static void *score_pictures(void *argument)
{
	struct job *job = argument;
	for (unsigned i = 0; i < job->contexts; i++) {
		VmafContext *vmaf = context(0, 0);
		VmafModel *loaded = model();
		double score;
		expect(!vmaf_use_features_from_model(vmaf, loaded), "features");
		VmafPicture ref = picture(job->w, job->h, i % KINDS, 0), dist = picture(job->w, job->h, i % KINDS, 1);
		expect(!vmaf_read_pictures(vmaf, &ref, &dist, 0), "a pair");
		expect(!vmaf_read_pictures(vmaf, NULL, NULL, 0), "a flush");
		expect(!vmaf_score_at_index(vmaf, loaded, &score, 0), "a score");
		expect(i < KINDS || score == job->scores[i % KINDS], "the same score for the same pictures");
		job->scores[i % KINDS] = score;
		vmaf_model_destroy(loaded);
		expect(!vmaf_close(vmaf), "an end");
	}
	return NULL;
}

static void score_in_threads(unsigned threads, unsigned contexts, unsigned w, unsigned h, double *scores)
{
	pthread_t ids[64];
	struct job jobs[64];
	for (unsigned i = 0; i < threads; i++) {
		jobs[i] = (struct job){ .contexts = contexts / threads, .w = w, .h = h };
		expect(!pthread_create(&ids[i], NULL, score_pictures, &jobs[i]), "a thread");
	}
	for (unsigned i = 0; i < threads; i++)
		pthread_join(ids[i], NULL);
	for (unsigned i = 1; i < threads; i++)
		expect(!memcmp(jobs[0].scores, jobs[i].scores, sizeof(jobs[0].scores)), "the same scores in all threads");
	memcpy(scores, jobs[0].scores, sizeof(jobs[0].scores));
}

static void contexts(unsigned threads, unsigned count, unsigned w, unsigned h)
{
	double scores[KINDS] = { 0 };
	score_in_threads(threads, threads * KINDS, w, h, scores);
	long memory = status("VmRSS:"), tasks = status("Threads:"), files = descriptors();
	double begin = seconds(), cpu = cpu_seconds();
	score_in_threads(threads, count, w, h, scores);
	fprintf(stderr, "%u contexts of one pair, %ux%u, %u threads: %.2f s, %.2f CPU seconds, %+ld KiB\n", count, w, h,
		threads, seconds() - begin, cpu_seconds() - cpu, status("VmRSS:") - memory);
	if (getenv("LIMITS")) {
		expect(status("VmRSS:") - memory < 16 * 1024, "no growth of memory");
		expect(status("Threads:") == tasks, "no growth of threads");
		expect(descriptors() == files, "no growth of descriptors");
	}
	for (unsigned i = 0; i < KINDS; i++)
		printf("%.17g\n", scores[i]);
}

static void memory(unsigned n_threads, unsigned pairs, unsigned pool)
{
	const unsigned w = 1920, h = 1080;
	const long size = w * h * 3 / 2;
	VmafContext *vmaf = context(n_threads, 0);
	expect(!vmaf_use_feature(vmaf, "psnr", NULL) && !vmaf_use_feature(vmaf, "psnr_hvs", NULL), "features");
	VmafPicture source[] = { picture(w, h, 0, 0), picture(w, h, 0, 1) };
	if (pool) {
		VmafPictureConfiguration cfg = { { w, h, 8, VMAF_PIX_FMT_YUV420P }, pool };
		expect(!vmaf_preallocate_pictures(vmaf, cfg), "a pool");
	}
	FILE *peak = fopen("/proc/self/clear_refs", "w");
	expect(peak && fputs("5", peak) >= 0 && !fclose(peak), "the peak of memory is set back");
	long before = status("VmRSS:");
	for (unsigned i = 0; i < pairs; i++) {
		VmafPicture pair[2];
		for (int side = 0; side < 2; side++) {
			expect(!(pool ? vmaf_fetch_preallocated_picture(vmaf, &pair[side])
				      : vmaf_picture_alloc(&pair[side], VMAF_PIX_FMT_YUV420P, 8, w, h)), "a picture");
			for (int p = 0; p < 3; p++)
				memcpy(pair[side].data[p], source[side].data[p], pair[side].stride[p] * pair[side].h[p]);
		}
		expect(!vmaf_read_pictures(vmaf, &pair[0], &pair[1], i), "a pair");
	}
	double pictures = (status("VmHWM:") - before) * 1024. / size;
	fprintf(stderr, "%u pairs of 1080p, %u threads, %s: memory of %.1f pictures\n", pairs, n_threads,
		pool ? "with a pool" : "new pictures", pictures);
	expect(pictures < 40 + pool, "less than 40 pictures in memory, beyond those of the pool");
	expect(!vmaf_read_pictures(vmaf, NULL, NULL, 0), "a flush");
	double score;
	expect(!vmaf_feature_score_pooled(vmaf, "psnr_hvs", VMAF_POOL_METHOD_MEAN, &score, 0, pairs - 1), "a score");
	for (int side = 0; side < 2; side++)
		vmaf_picture_unref(&source[side]);
	expect(!vmaf_close(vmaf), "an end");
}

static void *release(void *argument)
{
	VmafPicture *pictures = argument;
	for (int i = 5; i >= 0; i--)
		printf("unref %d: %d\n", i, vmaf_picture_unref(&pictures[i]));
	return NULL;
}

static void kept(unsigned n_threads)
{
	VmafContext *vmaf = context(n_threads, 2);
	VmafModel *loaded = model();
	expect(!vmaf_use_features_from_model(vmaf, loaded), "features");
	vmaf_model_destroy(loaded);
	VmafPictureConfiguration cfg = { { 64, 48, 8, VMAF_PIX_FMT_YUV420P }, 8 };
	expect(!vmaf_preallocate_pictures(vmaf, cfg), "a pool");
	for (unsigned n = 0; n < 5; n++) {
		VmafPicture pictures[6], ref, dist;
		for (int i = 0; i < 2; i++) {
			expect(!vmaf_fetch_preallocated_picture(vmaf, &pictures[i]), "a picture of the pool");
			pictures[i + 2] = picture(64, 48, n, i);
			pictures[i + 4] = picture(72, 48, n, i);
		}
		ref = picture(64, 48, n, 0);
		dist = picture(64, 48, n, 1);
		printf("read %u: %d\n", n, vmaf_read_pictures(vmaf, &ref, &dist, n));
		printf("other sizes: %d\n", vmaf_read_pictures(vmaf, &pictures[4], &pictures[2], n + 1));
		printf("other sizes: %d\n", vmaf_read_pictures(vmaf, &pictures[0], &pictures[5], n + 1));
		printf("one: %d\n", vmaf_read_pictures(vmaf, &pictures[3], NULL, n + 1));
		pthread_t id;
		expect(!pthread_create(&id, NULL, release, pictures), "a thread");
		pthread_join(id, NULL);
	}
	printf("flush: %d\n", vmaf_read_pictures(vmaf, NULL, NULL, 0));
	for (unsigned n = 0; n < 5; n += 2) {
		double score = 0;
		printf("%d ", vmaf_feature_score_at_index(vmaf, "VMAF_integer_feature_vif_scale0_score", &score, n));
		printf("%.17g\n", score);
	}
	printf("close: %d\n", vmaf_close(vmaf));
}

static void imported(void)
{
	static const char *const names[] = { "adm2", "motion2", "vif_scale0", "vif_scale1", "vif_scale2", "vif_scale3" };
	VmafContext *vmaf = context(0, 0);
	VmafModel *loaded = model();
	double score = 0;
	for (unsigned index = 0; index < 3; index++)
		for (unsigned i = 0; i < 6; i++) {
			char name[64];
			snprintf(name, sizeof(name), "VMAF_integer_feature_%s_score", names[i]);
			printf("score: %d\n", vmaf_score_at_index(vmaf, loaded, &score, index));
			printf("import: %d\n", vmaf_import_feature_score(vmaf, name, 1. - .1 * i - .05 * index, index));
			printf("again: %d\n", vmaf_import_feature_score(vmaf, name, .5, index));
		}
	for (unsigned index = 0; index < 4; index++) {
		score = 0;
		printf("%d ", vmaf_score_at_index(vmaf, loaded, &score, index));
		printf("%.17g\n", score);
	}
	printf("pooled: %d ", vmaf_score_pooled(vmaf, loaded, VMAF_POOL_METHOD_HARMONIC_MEAN, &score, 0, 2));
	printf("%.17g\n", score);
	vmaf_model_destroy(loaded);
	printf("close: %d\n", vmaf_close(vmaf));
}

static void misuse(void)
{
	VmafConfiguration cfg = { .log_level = VMAF_LOG_LEVEL_NONE };
	VmafModelConfig model_cfg = { .name = "vmaf" };
	VmafContext *vmaf = context(0, 0), *none = NULL;
	VmafModel *loaded = model(), *other = NULL;
	VmafModelCollection *collection = NULL;
	VmafModelCollectionScore scores;
	VmafFeatureDictionary *options = NULL;
	VmafPictureConfiguration pool = { { 64, 48, 8, VMAF_PIX_FMT_YUV420P }, 0 };
	VmafPicture ref, dist, empty = { 0 };
	double score;
#define CODE(call) printf("%s: %d\n", #call, call)
	CODE(vmaf_init(NULL, cfg));
	CODE(vmaf_close(NULL));
	CODE(vmaf_model_load(&other, &model_cfg, "nonsense"));
	CODE(vmaf_model_load_from_path(&other, &model_cfg, "/nonexistent"));
	CODE(vmaf_model_collection_load(&other, &collection, &model_cfg, "nonsense"));
	CODE(vmaf_model_collection_load_from_path(&other, &collection, &model_cfg, "/nonexistent"));
	CODE(vmaf_use_features_from_model(none, loaded));
	CODE(vmaf_use_features_from_model(vmaf, NULL));
	CODE(vmaf_use_features_from_model_collection(vmaf, NULL));
	CODE(vmaf_use_feature(none, "psnr", NULL));
	CODE(vmaf_use_feature(vmaf, NULL, NULL));
	CODE(vmaf_use_feature(vmaf, "nonsense", NULL));
	CODE(vmaf_import_feature_score(none, "x", 1, 0));
	CODE(vmaf_import_feature_score(vmaf, NULL, 1, 0));
	CODE(vmaf_feature_dictionary_set(NULL, "x", "1"));
	CODE(vmaf_feature_dictionary_set(&options, NULL, "1"));
	CODE(vmaf_feature_dictionary_set(&options, "enable_chroma", "perhaps"));
	CODE(vmaf_use_feature(vmaf, "psnr", options));
	options = NULL;
	CODE(vmaf_feature_dictionary_set(&options, "nonsense", "1"));
	CODE(vmaf_use_feature(vmaf, "psnr", options));
	options = NULL;
	CODE(vmaf_feature_dictionary_set(&options, "adm_enhn_gain_limit", "0.5"));
	CODE(vmaf_model_feature_overload(loaded, "nonsense", options));
	options = NULL;
	CODE(vmaf_feature_dictionary_free(&options));
	CODE(vmaf_picture_alloc(NULL, VMAF_PIX_FMT_YUV420P, 8, 64, 48));
	CODE(vmaf_picture_alloc(&ref, VMAF_PIX_FMT_UNKNOWN, 8, 64, 48));
	CODE(vmaf_picture_alloc(&ref, VMAF_PIX_FMT_YUV420P, 7, 64, 48));
	CODE(vmaf_picture_alloc(&ref, VMAF_PIX_FMT_YUV420P, 17, 64, 48));
	CODE(vmaf_picture_unref(NULL));
	CODE(vmaf_picture_unref(&empty));
	CODE(vmaf_fetch_preallocated_picture(none, &ref));
	CODE(vmaf_fetch_preallocated_picture(vmaf, NULL));
	CODE(vmaf_fetch_preallocated_picture(vmaf, &ref));
	CODE(vmaf_preallocate_pictures(none, pool));
	CODE(vmaf_preallocate_pictures(vmaf, pool));
	ref = picture(64, 48, 0, 0);
	dist = picture(64, 48, 0, 1);
	CODE(vmaf_read_pictures(none, &ref, &dist, 0));
	CODE(vmaf_read_pictures(vmaf, &ref, NULL, 0));
	CODE(vmaf_read_pictures(vmaf, NULL, &dist, 0));
	CODE(vmaf_read_pictures(vmaf, &ref, &dist, 0));
	CODE(vmaf_picture_unref(&ref));
	CODE(vmaf_feature_score_at_index(none, "psnr_y", &score, 0));
	CODE(vmaf_feature_score_at_index(vmaf, NULL, &score, 0));
	CODE(vmaf_feature_score_at_index(vmaf, "psnr_y", NULL, 0));
	CODE(vmaf_feature_score_at_index(vmaf, "psnr", &score, 0));
	CODE(vmaf_feature_score_at_index(vmaf, "psnr_y", &score, 1));
	CODE(vmaf_feature_score_at_index(vmaf, "psnr_y", &score, 4294967295u));
	CODE(vmaf_score_at_index(none, loaded, &score, 0));
	CODE(vmaf_score_at_index(vmaf, NULL, &score, 0));
	CODE(vmaf_score_at_index(vmaf, loaded, NULL, 0));
	CODE(vmaf_score_at_index(vmaf, loaded, &score, 0));
	CODE(vmaf_score_at_index_model_collection(vmaf, NULL, &scores, 0));
	CODE(vmaf_feature_score_pooled(none, "psnr_y", VMAF_POOL_METHOD_MEAN, &score, 0, 0));
	CODE(vmaf_feature_score_pooled(vmaf, NULL, VMAF_POOL_METHOD_MEAN, &score, 0, 0));
	CODE(vmaf_feature_score_pooled(vmaf, "psnr_y", VMAF_POOL_METHOD_UNKNOWN, &score, 0, 0));
	CODE(vmaf_feature_score_pooled(vmaf, "psnr_y", VMAF_POOL_METHOD_NB, &score, 0, 0));
	CODE(vmaf_feature_score_pooled(vmaf, "psnr_y", VMAF_POOL_METHOD_MEAN, &score, 1, 0));
	CODE(vmaf_feature_score_pooled(vmaf, "psnr_y", VMAF_POOL_METHOD_MEAN, &score, 0, 1));
	CODE(vmaf_feature_score_pooled(vmaf, "psnr_y", VMAF_POOL_METHOD_MEAN, &score, 0, 0));
	CODE(vmaf_score_pooled(vmaf, NULL, VMAF_POOL_METHOD_MEAN, &score, 0, 0));
	CODE(vmaf_score_pooled(vmaf, loaded, VMAF_POOL_METHOD_MEAN, NULL, 0, 0));
	CODE(vmaf_score_pooled(vmaf, loaded, VMAF_POOL_METHOD_MEAN, &score, 1, 0));
	CODE(vmaf_score_pooled_model_collection(vmaf, NULL, VMAF_POOL_METHOD_MEAN, &scores, 0, 0));
	CODE(vmaf_write_output(vmaf, "/nonexistent/report", VMAF_OUTPUT_FORMAT_XML));
	CODE(vmaf_read_pictures(vmaf, NULL, NULL, 0));
	CODE(vmaf_read_pictures(vmaf, NULL, NULL, 0));
	ref = picture(64, 48, 1, 0);
	dist = picture(64, 48, 1, 1);
	CODE(vmaf_read_pictures(vmaf, &ref, &dist, 1));
	CODE(vmaf_picture_unref(&dist));
	CODE(vmaf_picture_unref(&ref));
	CODE(vmaf_picture_unref(&ref));
	CODE(vmaf_use_features_from_model(vmaf, loaded));
	CODE(vmaf_import_feature_score(vmaf, "late", 1, 0));
	vmaf_model_destroy(NULL);
	vmaf_model_collection_destroy(NULL);
	vmaf_model_destroy(loaded);
	CODE(vmaf_close(vmaf));
}

int main(int argc, char **argv)
{
	unsigned numbers[4] = { 0 };
	for (int i = 2; i < argc && i < 6; i++)
		numbers[i - 2] = atoi(argv[i]);
	const char *mode = argc > 1 ? argv[1] : "";
	if (!strcmp(mode, "contexts"))
		contexts(numbers[0], numbers[1], numbers[2], numbers[3]);
	else if (!strcmp(mode, "memory"))
		memory(numbers[0], numbers[1], numbers[2]);
	else if (!strcmp(mode, "kept"))
		kept(numbers[0]);
	else if (!strcmp(mode, "imported"))
		imported();
	else if (!strcmp(mode, "misuse"))
		misuse();
	else
		return 2;
	return 0;
}
