/* SPDX-License-Identifier: Apache-2.0 */
/* A case's identity. */
#include "result/case_id.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

int jm_json_hash(const json_t *json, char ret_id[JM_CASE_ID], struct jm_err *err)
{
	char *text = json_dumps(
		json, JSON_COMPACT | JSON_SORT_KEYS | JSON_ENCODE_ANY | JSON_REAL_PRECISION(15));
	XXH128_canonical_t hash;

	if (!text)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for the parameters of a case.");
	XXH128_canonicalFromHash(&hash, XXH3_128bits(text, strlen(text)));
	for (size_t i = 0; i < sizeof(hash.digest); i++)
		snprintf(ret_id + 2 * i, 3, "%02x", hash.digest[i]);
	free(text);
	return 0;
}

bool jm_case_simulated(const char *device)
{
	return device && !strncmp(device, "sim:", 4);
}

/* The name of a knob has no slash; that of a phase or a device may have some. */
const char *jm_case_knob(const char *setting, char *ret_phase, size_t size)
{
	size_t n = strcspn(setting, "@=");

	while (n && setting[n - 1] != '/')
		n--;
	if (ret_phase)
		snprintf(ret_phase, size, "%.*s", n ? (int)n - 1 : 0, setting);
	return setting + n;
}
