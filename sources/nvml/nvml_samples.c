/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Power out of the driver's own buffer: a sample each 20 ms on Hopper (an H200 keeps 119 of them),
 * with the time at which it was taken. A polled reading is up to 20 ms old when it comes, by an
 * unknown time. One call takes 1.3 ms on an H200.
 */
#include "nvml_samples.h"
#include "base/clock.h"
#include "base/ctx.h"

#include <math.h>

#define ROWS	    256
#define TOTAL_POWER 0 /* nvmlSamplingType_t */

const struct jm_nvml_probe jm_nvml_sample_probe = {
	JM_Q_POWER, 0, JM_NVML_SCOPE_GPU, false, 1e-3, NULL, 0, 0};

struct jm_signal jm_nvml_sample_signal(const struct jm_nvml_sensor *sensor)
{
	struct jm_signal signal = jm_nvml_signal(sensor, JM_Q_POWER);

	signal.refresh_ns = JM_NVML_SAMPLE_NS;
	signal.window_ns = -1;
	signal.stamped = true;
	return signal;
}

bool jm_nvml_has_samples(const struct jm_nvml *nvml, jm_nvml_device device)
{
	struct jm_nvml_power_sample row[ROWS];
	unsigned int n = ROWS;
	int type = -1;

	return nvml->samples && !nvml->samples(device, TOTAL_POWER, 0, &type, &n, row) &&
	       type == JM_NVML_U32;
}

static void give_one(struct jm_sink *sink, const struct jm_nvml_board *g, struct jm_nvml_slot *slot,
	double watts, int64_t t_ns)
{
	if (t_ns <= slot->last.t_ns)
		return;
	slot->last = (struct jm_reading){.value = watts, .t_ns = t_ns};
	/* several readings of one signal do not fit into the sink's row */
	sink->give(sink, g->out[slot - g->slot], 1, &slot->last);
}

int jm_nvml_samples_read(
	const struct jm_nvml_state *s, struct jm_nvml_board *g, struct jm_sink *sink)
{
	struct jm_nvml_slot *slot = &g->slot[g->begin[JM_NVML_SAMPLES]];
	int64_t now = jm_ctx_now(s->ctx), offset = jm_clock_wall(s->ctx->clock) - now;
	struct jm_nvml_power_sample row[ROWS];
	unsigned int n = ROWS;
	int type = JM_NVML_U32, rc;

	if (!slot->stamp_us) /* those from before the measurement are not wanted */
		slot->stamp_us = (now + offset) / 1000 - 1;
	jm_nvml_call_begin(g);
	rc = s->nvml.samples(
		g->handle, TOTAL_POWER, (unsigned long long)slot->stamp_us, &type, &n, row);
	jm_nvml_call_end(g);
	if (rc == JM_NVML_NOT_FOUND) /* no new ones */
		return 0;
	if (rc || type != JM_NVML_U32) {
		give_one(sink, g, slot, NAN, now);
		return rc;
	}
	for (unsigned int i = 0; i < n && i < ROWS; i++) {
		int64_t t = (int64_t)row[i].stamp_us * 1000 - offset;

		if ((long long)row[i].stamp_us <= slot->stamp_us || t > now)
			continue;
		slot->stamp_us = (long long)row[i].stamp_us;
		give_one(sink, g, slot,
			jm_nvml_plausible(JM_Q_POWER, row[i].milliwatts * slot->probe->scale), t);
	}
	return 0;
}
