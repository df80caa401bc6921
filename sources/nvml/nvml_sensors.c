/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Timing of NVIDIA's power sensors, by chip. Refresh, window and the 5 % between boards: Yang et
 * al., SC'24, arXiv 2312.02741, and its table of results; the counter's 100 ms: the ml.energy blog.
 *
 * H200: own measurement, driver 580.159.04, one GPU, read every 3 ms under matrix products that
 * start and stop (square waves of 0.2, 1 and 3.3 s). The counter steps every 100.01 ms. The driver
 * keeps a power reading for 100 ms and then takes a new one when next asked. Average: a plain mean
 * of the counter over 1.00 to 1.02 s is within 5 W of it everywhere. Window of instant power: of
 * 101 readings in the wave of 0.2 s (an edge every 100 ms) and those around 28 lone edges, 14 lie
 * between 5 and 80 % of the way from low to high; a window of W ms gives 0.96 W of them, so W is
 * 14.5 (95 %: 8 to 24); the driver's own buffer of power samples has one every 20 ms, so 20 is
 * taken. A sample of that buffer is a mean over 2.5 ms or less, but follows power with a time
 * constant of 15 ms (docs/calibrating.md, folded products of 1 ms), which acts like such a window;
 * `calibrate` on another H200 found 31 (25 to 37), with the jumps of the window's end. The 5 %
 * between boards is assumed.
 */
#include "nvml_sensors.h"

#include <math.h>
#include <string.h>

static const struct jm_nvml_sensor sensors[] = {
	{JM_NVML_HOPPER, 0, "GH200", 100, 20, 1000, 100, 0.05},
	{JM_NVML_HOPPER, 0, "H200", 100, 20, 1000, 100, 0.05}, /* "GH200" has it too: after it */
	{JM_NVML_HOPPER, 0, "H100", 100, 25, 1000, 100, 0.05},
	{JM_NVML_ADA, 0, "", 100, 100, 1000, 100, 0.05},
	{JM_NVML_AMPERE, 80, "", 100, 25, -1, 100, 0.05},
	{JM_NVML_AMPERE, 0, "", 100, 100, 1000, 100, 0.05},
	{JM_NVML_TURING, 0, "", 100, 100, -1, 0, 0.05}, {JM_NVML_VOLTA, 0, "", 20, 10, -1, 0, 0.05},
	{JM_NVML_PASCAL, 0, "", 20, 10, -1, 0, 0.05},
	{0, 0, "", 0, -1, -1, 0, NAN}, /* not characterised: Blackwell, older than Pascal */
};

const struct jm_nvml_sensor *jm_nvml_sensor_of(const struct jm_nvml_gpu *gpu)
{
	const struct jm_nvml_sensor *s = sensors;

	while (s->architecture &&
		(s->architecture != gpu->architecture || !strstr(gpu->name, s->name) ||
			(s->capability && s->capability != gpu->capability)))
		s++;
	return s;
}
