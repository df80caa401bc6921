/* SPDX-License-Identifier: Apache-2.0 */
/* Requests of a plan, as a store from outside may contain them. */
#include "fuzz.h"
#include "fuzz_json.h"
#include "run/plan/plan.h"

static const char base[] =
	"{\"what\":{\"workload\":\"sim\",\"device\":[\"sim:h100x4\"],\"precision\":[\"f32\"],"
	"\"options\":{\"batch\":[\"4\",\"8\"]},\"settings\":[{\"knob\":\"gpu.power\","
	"\"selector\":\"\",\"unit\":\"W\",\"values\":[\"300W\",\"400W\"]}],\"steps\":3},"
	"\"found\":[{\"knob\":\"gpu.power\",\"device\":\"a\",\"unit\":\"W\",\"value\":"
	"\"400W\"}],\"how\":{},\"repeat\":2,\"seed\":1}";

static void check(const struct jm_plan *plan)
{
	int *order = calloc((size_t)plan->n + 1, sizeof(*order));
	char *seen = calloc((size_t)plan->n + 1, 1);

	if (!order || !seen)
		abort();
	jm_plan_order(plan, 1, order);
	for (int i = 0; i < plan->n; i++) {
		if (order[i] < 0 || order[i] >= plan->n || seen[order[i]]++)
			abort();
	}
	free(order);
	free(seen);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct jm_err err = JM_ERR_INIT;
	struct jm_plan plan;
	json_t *request;
	int rc;

	if (size && data[0] == '{')
		request = json_loadb((const char *)data, size, 0, NULL);
	else
		request = json_loads(base, 0, NULL);
	if (!request)
		return 0;
	if (!size || data[0] != '{')
		fuzz_edit_all(request, data, size);
	rc = jm_plan_new(request, &plan, &err);
	fuzz_check(rc, &err);
	if (!rc) {
		check(&plan);
		jm_plan_done(&plan);
	}
	json_decref(request);
	return 0;
}
