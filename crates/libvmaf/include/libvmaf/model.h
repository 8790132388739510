/* SPDX-License-Identifier: MPL-2.0 */

/* Models, and collections of models that tell how certain their score is. */

#ifndef HIPVMAF_LIBVMAF_MODEL_H
#define HIPVMAF_LIBVMAF_MODEL_H

#include <stdint.h>

#include "libvmaf/feature.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct VmafModel VmafModel;
typedef struct VmafModelCollection VmafModelCollection;

enum VmafModelFlags {
	VMAF_MODEL_FLAGS_DEFAULT = 0,
	VMAF_MODEL_FLAG_DISABLE_CLIP = 1 << 0,
	VMAF_MODEL_FLAG_ENABLE_TRANSFORM = 1 << 1,
	VMAF_MODEL_FLAG_DISABLE_TRANSFORM = 1 << 2,
};

typedef struct VmafModelConfig {
	const char *name; /* of the scores; NULL for "vmaf" */
	uint64_t flags;   /* of VmafModelFlags */
} VmafModelConfig;

/* Loads a built-in model by its name. Fails for a collection. */
int vmaf_model_load(VmafModel **model, VmafModelConfig *cfg, const char *version);

/* Loads a model file. Fails for a collection. */
int vmaf_model_load_from_path(VmafModel **model, VmafModelConfig *cfg, const char *path);

/* Sets options of the features that an extractor computes, before the features are used. Takes the dictionary. */
int vmaf_model_feature_overload(VmafModel *model, const char *feature_name, VmafFeatureDictionary *opts_dict);

void vmaf_model_destroy(VmafModel *model);

enum VmafModelCollectionScoreType {
	VMAF_MODEL_COLLECTION_SCORE_UNKNOWN = 0,
	VMAF_MODEL_COLLECTION_SCORE_BOOTSTRAP = 1,
};

typedef struct VmafModelCollectionScore {
	enum VmafModelCollectionScoreType type;
	struct {
		double bagging_score;
		double stddev;
		struct {
			struct {
				double lo, hi;
			} p95;
		} ci;
	} bootstrap;
} VmafModelCollectionScore;

/* Loads a built-in collection: its first member as a model, and the others. */
int vmaf_model_collection_load(VmafModel **model, VmafModelCollection **model_collection, VmafModelConfig *cfg,
			       const char *version);

/* Loads the file of a collection: its first member as a model, and the others. */
int vmaf_model_collection_load_from_path(VmafModel **model, VmafModelCollection **model_collection,
					 VmafModelConfig *cfg, const char *path);

/* Sets options of the features that an extractor computes, of all members. Takes the dictionary. */
int vmaf_model_collection_feature_overload(VmafModel *model, VmafModelCollection **model_collection,
					   const char *feature_name, VmafFeatureDictionary *opts_dict);

void vmaf_model_collection_destroy(VmafModelCollection *model_collection);

#ifdef __cplusplus
}
#endif

#endif
