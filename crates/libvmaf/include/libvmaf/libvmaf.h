/* SPDX-License-Identifier: MPL-2.0 */

/*
 * libvmaf 3.2.0's interface, with scores computed by hipvmaf. Functions return 0, or a negative error number; an error of
 * any score that is not there is -EINVAL.
 */

#ifndef HIPVMAF_LIBVMAF_LIBVMAF_H
#define HIPVMAF_LIBVMAF_LIBVMAF_H

#include <stdint.h>
#include <stdio.h>

#include "libvmaf/feature.h"
#include "libvmaf/model.h"
#include "libvmaf/picture.h"

#ifdef __cplusplus
extern "C" {
#endif

enum VmafLogLevel {
	VMAF_LOG_LEVEL_NONE = 0,
	VMAF_LOG_LEVEL_ERROR,
	VMAF_LOG_LEVEL_WARNING,
	VMAF_LOG_LEVEL_INFO,
	VMAF_LOG_LEVEL_DEBUG,
};

enum VmafOutputFormat {
	VMAF_OUTPUT_FORMAT_NONE = 0,
	VMAF_OUTPUT_FORMAT_XML,
	VMAF_OUTPUT_FORMAT_JSON,
	VMAF_OUTPUT_FORMAT_CSV,
	VMAF_OUTPUT_FORMAT_SUB,
};

enum VmafPoolingMethod {
	VMAF_POOL_METHOD_UNKNOWN = 0,
	VMAF_POOL_METHOD_MIN,
	VMAF_POOL_METHOD_MAX,
	VMAF_POOL_METHOD_MEAN,
	VMAF_POOL_METHOD_HARMONIC_MEAN,
	VMAF_POOL_METHOD_NB
};

typedef struct VmafConfiguration {
	enum VmafLogLevel log_level;
	unsigned n_threads;   /* that compute; 0 for one, with errors of pictures known at once */
	unsigned n_subsample; /* scores pictures whose index this divides */
	uint64_t cpumask;     /* without effect */
	uint64_t gpumask;     /* other than 0: no GPU */
} VmafConfiguration;

typedef struct VmafContext VmafContext;

int vmaf_init(VmafContext **vmaf, VmafConfiguration cfg);

/* Computes the features that a model reads, for the pictures that follow. */
int vmaf_use_features_from_model(VmafContext *vmaf, VmafModel *model);

/* Computes the features that the members of a collection read. */
int vmaf_use_features_from_model_collection(VmafContext *vmaf, VmafModelCollection *model_collection);

/* Computes the features of an extractor. Takes the dictionary, which may be NULL, if there is such an extractor. */
int vmaf_use_feature(VmafContext *vmaf, const char *feature_name, VmafFeatureDictionary *opts_dict);

/* Stores a score that was computed elsewhere. */
int vmaf_import_feature_score(VmafContext *vmaf, const char *feature_name, double value, unsigned index);

/* Takes two pictures, and zeroes the structures; after an error the caller keeps both. Without pictures, ends the input. */
int vmaf_read_pictures(VmafContext *vmaf, VmafPicture *ref, VmafPicture *dist, unsigned index);

/* Scores of one picture: of a model, of a collection, and by the name under which a feature is stored. */
int vmaf_score_at_index(VmafContext *vmaf, VmafModel *model, double *score, unsigned index);
int vmaf_score_at_index_model_collection(VmafContext *vmaf, VmafModelCollection *model_collection,
					 VmafModelCollectionScore *score, unsigned index);
int vmaf_feature_score_at_index(VmafContext *vmaf, const char *feature_name, double *score, unsigned index);

/* One number for the scores of pictures from index_low to index_high. */
int vmaf_score_pooled(VmafContext *vmaf, VmafModel *model, enum VmafPoolingMethod pool_method, double *score,
		      unsigned index_low, unsigned index_high);
int vmaf_score_pooled_model_collection(VmafContext *vmaf, VmafModelCollection *model_collection,
				       enum VmafPoolingMethod pool_method, VmafModelCollectionScore *score,
				       unsigned index_low, unsigned index_high);
int vmaf_feature_score_pooled(VmafContext *vmaf, const char *feature_name, enum VmafPoolingMethod pool_method,
			      double *score, unsigned index_low, unsigned index_high);

typedef struct VmafPictureConfiguration {
	struct {
		unsigned w, h;
		unsigned bpc;
		enum VmafPixelFormat pix_fmt;
	} pic_params;
	unsigned pic_cnt;
} VmafPictureConfiguration;

/* Makes a pool of pictures. */
int vmaf_preallocate_pictures(VmafContext *vmaf, VmafPictureConfiguration cfg);

/* Hands out a picture of the pool, which is not zeroed again; waits while all are out. */
int vmaf_fetch_preallocated_picture(VmafContext *vmaf, VmafPicture *pic);

/* Ends a context. Waits until all pictures of its pool were given back. */
int vmaf_close(VmafContext *vmaf);

/* Writes all scores to a file. */
int vmaf_write_output(VmafContext *vmaf, const char *output_path, enum VmafOutputFormat fmt);

/* The version of libvmaf whose interface this is, and what follows it. */
const char *vmaf_version(void);

#ifdef __cplusplus
}
#endif

#endif
