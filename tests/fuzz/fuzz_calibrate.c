/* SPDX-License-Identifier: Apache-2.0 */
/* An observation of sensors, as `calibrate --from` reads it, is refused or fitted; results are
 * finite or null. */
#include "fuzz.h"

#include "run/calibration.h"
#include "run/calibration_fit.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct jm_err err = JM_ERR_INIT;
	json_t *observed = json_loadb((const char *)data, size, JSON_REJECT_DUPLICATES, NULL);

	if (observed)
		jm_calibrate_fit(observed, &err);
	json_decref(observed);
	return 0;
}
