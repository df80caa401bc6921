/* SPDX-License-Identifier: Apache-2.0 */
#include "run/workload.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/member.h"

JM_DEFINE_FIND(workload)

void jm_work_note(struct jm_work *work, const char *fmt, ...)
{
	size_t n = strlen(work->note);
	va_list args;

	if (n && n + 1 < sizeof(work->note))
		work->note[n++] = ' ';
	va_start(args, fmt);
	vsnprintf(work->note + n, sizeof(work->note) - n, fmt, args);
	va_end(args);
}

const struct jm_option jm_soft_options[] = {
	{.name = "sm-share",
		.type = JM_REAL,
		.unit = "",
		.min = 1,
		.max = 100,
		.argument = "PERCENT,...",
		.help = "soft control, which needs no special rights: compute on this share of the "
			"GPU's multiprocessors, in steps of what the driver splits by"},
	{.name = "hold-power",
		.type = JM_REAL,
		.unit = "W",
		.min = 1,
		.max = 1e6,
		.argument = "WATTS,...",
		.help = "soft control, which needs no special rights: pause between steps so that "
			"the mean power of the computing devices has this value; it limits no "
			"power within a step"},
	{.name = "affinity",
		.type = JM_TEXT,
		.argument = "near|none|CPUS,...",
		.help = "processors of each rank: next to its GPU, as they are, or lists such as "
			"0-11+96-107/12-23+108-119"},
	{0},
};
