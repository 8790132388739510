/* SPDX-License-Identifier: MPL-2.0 */

/* Options of feature extractors, by name. */

#ifndef HIPVMAF_LIBVMAF_FEATURE_H
#define HIPVMAF_LIBVMAF_FEATURE_H

#ifdef __cplusplus
extern "C" {
#endif

typedef struct VmafFeatureDictionary VmafFeatureDictionary;

/* Sets an option, in place of an earlier value; makes the dictionary if *dict is NULL. */
int vmaf_feature_dictionary_set(VmafFeatureDictionary **dict, const char *key, const char *val);

/* Frees a dictionary that was not given to another function, and sets *dict to NULL. */
int vmaf_feature_dictionary_free(VmafFeatureDictionary **dict);

#ifdef __cplusplus
}
#endif

#endif
